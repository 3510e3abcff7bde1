"""The proof that samples in one row do not see each other, made on the model and the backend of the run."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tunesmith.errors import ModelError
from tunesmith.models.attention import computes_exactly
from tunesmith.models.heads import evaluation_mode, find_base_model
from tunesmith.models.precision import Precision

logger = logging.getLogger(__name__)


def check_isolation(model: nn.Module, layout: Literal["flat", "padded"], precision: Precision | None = None) -> None:
    """Prove on the real model and backend that samples in one row do not see each other.

    Two short random samples run behind one another, as packing lays them out, once with each of two different first
    samples: the second sample must not move; and it must be what it is alone.

    Args:
        model: The model of the run, on its device, with or without adapters. Nothing about it is changed.
        layout: How batches will be laid out; `flat` batches bring the borders of their samples along.
        precision: Of the run; needed where trained and frozen weights differ in type.

    Raises:
        ModelError: The samples touch; the message says what to set.
    """
    first, other, second = _random_samples(model, 13, 13, 11)
    with _probing(model, precision):
        packed, changed = (_run_packed(model, [start, second], layout)[-len(second) :] for start in (first, other))
        alone = _run_packed(model, [second], layout)
    found = _compare(packed, changed, alone, precision)
    name, implementation = _describe(model)
    if not found.is_isolated:
        raise ModelError(
            f"flash_attn: with '{implementation}' packed samples of {name} see each other: changing one sample moves "
            f"the {found.kind} of the next by {found.leak:.3g}, and packing itself by {found.difference:.3g} (allowed: "
            f"{found.tolerance:.1g}). Set packing: false and padding_free: false, or another flash_attn."
        )
    logger.debug(
        "samples are isolated with %s: leak %.2g, difference %.2g", implementation, found.leak, found.difference
    )


def find_shared_prefix_obstacle(model: nn.Module, precision: Precision | None = None) -> str:
    """Prove on the real model that branches of one prompt see the prompt and not each other.

    Two groups run in one row, once with each of two different first branches: the second branch must not move; and
    both must be what they are behind their prompt in a row of their own. A model that does not hand `branch_lengths`
    down to its attention fails this, as does one with another attention.

    Args:
        model: The model of the run, on its device, with or without adapters. Nothing about it is changed.
        precision: Of the run; needed where trained and frozen weights differ in type.

    Returns:
        What is wrong, in words; empty where prompts can be shared.
    """
    first, prompt, chosen, other, rejected = _random_samples(model, 12, 9, 8, 8, 11)
    with _probing(model, precision):
        shared, changed = (
            _run_branches(model, [[first, chosen, first], [prompt, branch, rejected]]) for branch in (chosen, other)
        )
        alone = [
            _run_packed(model, [torch.cat([prompt, branch])], "padded")[len(prompt) :] for branch in (chosen, rejected)
        ]
    end = len(rejected)
    own = shared[-end - len(chosen) : -end]
    found = [
        _compare(own, own, alone[0], precision),
        _compare(shared[-end:], changed[-end:], alone[1], precision),
    ]
    if all(each.is_isolated for each in found):
        return ""
    name, implementation = _describe(model)
    return (
        f"with '{implementation}' completions of {name} behind a shared prompt are not what they are by themselves: "
        f"changing one moves the {found[0].kind} of the other by {found[1].leak:.3g}, and sharing itself by "
        f"{max(each.difference for each in found):.3g} (allowed: {found[1].tolerance:.1g})"
    )


@dataclass(frozen=True, slots=True)
class _Outputs:
    """What a model computes for every token of a row."""

    values: Tensor
    """Shape [tokens, vocabulary or hidden]."""

    kind: str

    def __getitem__(self, places: slice) -> "_Outputs":
        return _Outputs(self.values[places], self.kind)


@dataclass(frozen=True, slots=True)
class _Comparison:
    leak: float
    difference: float
    tolerance: float
    kind: str

    @property
    def is_isolated(self) -> bool:
        return max(self.leak, self.difference) <= self.tolerance and self.leak == self.leak


def _compare(packed: _Outputs, changed: _Outputs, alone: _Outputs, precision: Precision | None) -> _Comparison:
    """Compare a sample behind two different ones, and by itself."""
    values = alone.values
    # Another sample must leave no trace but the rounding of a differently cut product.
    tolerance = 1e-4 if computes_exactly(values.dtype, values.device, precision) else 5e-2
    return _Comparison(
        leak=(packed.values - changed.values).abs().max().item(),
        difference=(packed.values - values).abs().max().item(),
        tolerance=tolerance * max(1.0, values.abs().max().item()),
        kind=alone.kind,
    )


@contextmanager
def _probing(model: nn.Module, precision: Precision | None) -> Iterator[None]:
    device = find_base_model(model).device
    autocast = precision.autocast(device) if precision is not None else nullcontext()
    with evaluation_mode(model), torch.no_grad(), autocast:
        yield


def _random_samples(model: nn.Module, *lengths: int) -> list[Tensor]:
    """Return token ids on the model's device. Shape [length] each."""
    base = find_base_model(model)
    vocab_size = base.config.get_text_config().vocab_size
    rng = torch.Generator().manual_seed(0)
    return [torch.randint(0, vocab_size, (length,), generator=rng).to(base.device) for length in lengths]


def _run_packed(model: nn.Module, samples: Sequence[Tensor], layout: str) -> _Outputs:
    """Run samples end to end in one row."""
    lengths = [len(sample) for sample in samples]
    device = samples[0].device
    inputs: dict[str, Any] = {
        "input_ids": torch.cat(list(samples))[None],
        "position_ids": torch.cat([torch.arange(length, device=device) for length in lengths])[None],
    }
    if layout == "flat":
        borders = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device=device)
        inputs |= {"cu_seq_lens_q": borders, "cu_seq_lens_k": borders}
        inputs |= {"max_length_q": max(lengths), "max_length_k": max(lengths)}
    return _run(model, inputs)


def _run_branches(model: nn.Module, groups: Sequence[Sequence[Tensor]]) -> _Outputs:
    """Run groups of a prompt and its branches in one row."""
    device = groups[0][0].device
    positions: list[Tensor] = []
    for prompt, *branches in groups:
        ends = [0, *(len(prompt) for _ in branches)]
        parts = zip(ends, (prompt, *branches), strict=True)
        positions.extend(torch.arange(start, start + len(part), device=device) for start, part in parts)
    return _run(
        model,
        {
            "input_ids": torch.cat([part for group in groups for part in group])[None],
            "position_ids": torch.cat(positions)[None],
            "branch_lengths": tuple(tuple(len(part) for part in group) for group in groups),
        },
    )


def _run(model: nn.Module, inputs: dict[str, Any]) -> _Outputs:
    """Return what the model computes for each token: logits, or hidden states where it has no vocabulary."""
    base = find_base_model(model)
    if base.get_output_embeddings() is not None:
        return _Outputs(model(**inputs, use_cache=False).logits[0], "logits")
    found: list[Tensor] = []
    handle = base.get_decoder().register_forward_hook(lambda module, args, output: found.append(output[0]))
    try:
        model(**inputs, use_cache=False)
    finally:
        handle.remove()
    return _Outputs(found[-1][0], "hidden states")


def _describe(model: nn.Module) -> tuple[str, str]:
    base = find_base_model(model)
    return type(base).__name__, str(base.config._attn_implementation)
