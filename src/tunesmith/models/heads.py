"""The output head of a language model, taken apart from its body.

Losses need logits for labelled positions only. So the model is called as usual, wrappers and all, but asked for one
position of logits; the last hidden states are picked up on the way out of its decoder, and the head is applied to the
positions that count. Whether a model can be taken apart like this is proved by numbers, not assumed.
"""

import inspect
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from tunesmith.errors import ModelError
from tunesmith.models.families import LogitTransform, resolve_logit_transform
from tunesmith.models.precision import Precision

logger = logging.getLogger(__name__)

_PROBE_TOKENS = 8


@dataclass(frozen=True, slots=True)
class LanguageHead:
    """The parts of a model that turn its last hidden states into logits."""

    module: nn.Module
    """The output projection; called with hidden states. Shape [..., hidden] -> [..., vocabulary]."""

    decoder: nn.Module
    """The body whose output is the input of `module`."""

    logit_transform: LogitTransform
    is_separable: bool
    """Whether `transform(module(hidden states))` equals the model's own logits. If not, take whole logits from it."""

    reason: str = ""
    """Why the head cannot be taken apart; empty when it can."""

    def transform(self, logits: Tensor) -> Tensor:
        """Apply the family's scale and soft cap to raw outputs of `module`, any shape."""
        return self.logit_transform(logits)


class Bodied(Protocol):
    """Whatever head knows the body that it stands on."""

    @property
    def decoder(self) -> nn.Module:
        """The module whose output is the last hidden states."""
        ...


class HiddenStates:
    """Picks up the last hidden states while a model runs.

    Use as a context manager around the call of the (wrapped) model; `.last` then holds what left the decoder, with its
    graph, shape [batch, tokens, hidden], and `.output` all that the decoder gave.
    """

    def __init__(self, head: Bodied) -> None:
        self._decoder = head.decoder
        self._handle: RemovableHandle | None = None
        self._output: Any = None

    @property
    def last(self) -> Tensor:
        """The hidden states of the most recent call inside the context."""
        last: Tensor = self.output[0]
        return last

    @property
    def output(self) -> Any:
        """What the decoder returned in the most recent call inside the context."""
        if self._output is None:
            raise RuntimeError("the model has not been run inside this context")
        return self._output

    def __enter__(self) -> Self:
        self._handle = self._decoder.register_forward_hook(self._keep)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self._handle.remove()

    def _keep(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        self._output = output


@dataclass(frozen=True, slots=True)
class BodyOutput:
    """What a run of the model without its full head gives."""

    hidden: Tensor
    """Input of the head for every position. Shape [batch, tokens, hidden]."""

    output: Any
    """The model's own output object (router losses and the like); its logits cover one position per row."""


def run_body(model: nn.Module, head: LanguageHead, inputs: Mapping[str, Any]) -> BodyOutput:
    """Run a model, in whatever wrappers, and return its last hidden states instead of its logits.

    Args:
        model: What the trainer wrapped (DDP, peft, ...); it is called, not unwrapped, so that its hooks run.
        head: Of the same model; must be separable.
        inputs: Keyword arguments of the model's forward, without labels.
    """
    with HiddenStates(head) as states:
        output = model(**inputs, logits_to_keep=1)
    # A learnt prompt stands in front of the text and leaves hidden states of its own there.
    return BodyOutput(hidden=states.last[:, -inputs["input_ids"].shape[1] :], output=output)


def find_base_model(model: nn.Module) -> PreTrainedModel:
    """Return the transformers model inside peft and data-parallel wrappers (itself when there are none)."""
    while isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        model = model.module
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    if not isinstance(base, PreTrainedModel):
        raise ModelError(f"model: a {type(base).__name__} is not a transformers model. Load it with load_model.")
    return base


def resolve_head(model: nn.Module, precision: Precision | None = None) -> LanguageHead:
    """Find the head of a model and prove that it can be taken apart from the body.

    The proof is one forward pass of eight tokens: the head applied to the captured hidden states must give the model's
    own logits. Where it does not (an unknown family that scales its hidden states, say), the head comes back with
    `is_separable=False`, which costs memory but stays right.

    Args:
        model: A transformers causal language model, also wrapped by peft.
        precision: Of the run; needed where trained and frozen weights differ in type.

    Raises:
        ModelError: The model has no output embeddings, so it is no language model.
    """
    base = find_base_model(model)
    module = base.get_output_embeddings()
    if module is None:
        raise ModelError(
            f"model: {type(base).__name__} has no output head over a vocabulary, so there is no next token to learn. "
            "Use a causal language model."
        )
    transform = resolve_logit_transform(base.config.get_text_config())
    candidate = LanguageHead(module, base.get_decoder(), transform, is_separable=True)
    reason = _find_obstacle(base, candidate, precision)
    if not reason:
        return candidate
    logger.warning("loss is computed from whole logits, which needs more memory: %s", reason)
    return LanguageHead(module, candidate.decoder, transform, is_separable=False, reason=reason)


def _find_obstacle(base: PreTrainedModel, head: LanguageHead, precision: Precision | None) -> str:
    name = type(base).__name__
    if base.config.is_encoder_decoder:
        return f"{name} is an encoder-decoder"
    if "logits_to_keep" not in inspect.signature(base.forward).parameters:
        return f"{name} cannot leave out logits (no logits_to_keep)"
    ids = torch.arange(1, _PROBE_TOKENS + 1, device=base.device).remainder(base.config.get_text_config().vocab_size)[
        None
    ]
    autocast = precision.autocast(base.device) if precision is not None else nullcontext()
    with evaluation_mode(base), torch.no_grad(), autocast, HiddenStates(head) as states:
        expected = base(input_ids=ids, use_cache=False).logits
        if states.last.dim() != 3:
            return f"{name}'s decoder does not return hidden states of shape [batch, tokens, hidden]"
        found = head.transform(head.module(states.last))
    difference = (found - expected).abs().max().item()
    tolerance = 1e-4 if expected.dtype == torch.float32 else 2e-2
    if difference > tolerance * max(1.0, expected.abs().max().item()):
        return f"the head of {name} applied to its hidden states is {difference:.3g} away from its logits"
    return ""


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Switch dropout and the like off for a while; every submodule gets back the mode it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
