"""Scores of whole texts: the body is run as usual, and the score head is applied at the last token of each text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from tunesmith.errors import ModelError
from tunesmith.models.heads import HiddenStates, evaluation_mode, find_base_model
from tunesmith.models.precision import Precision

_PROBE_TOKENS = 8
_TOLERANCE = {True: 1e-4, False: 2e-2}


class ScoreLinear(nn.Linear):
    """A linear layer that computes in the type of its weights, which stay in float32 beside a body in half precision.

    A score is one number per text: its rounding would decide near ties, its cost does not count.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name is that of nn.Linear
        """Return the scores. Shape [..., hidden] -> [..., 1]."""
        with torch.autocast(input.device.type, enabled=False):
            return nn.functional.linear(input.to(self.weight.dtype), self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class ScoreHead:
    """The parts of a reward model."""

    module: nn.Module
    """Turns a hidden state into a score. Shape [..., hidden] -> [..., 1]."""

    decoder: nn.Module
    """The body whose output is the input of `module`."""

    def score(self, model: nn.Module, inputs: Mapping[str, Any], last_positions: Tensor) -> tuple[Tensor, Any]:
        """Run a reward model and return the score of each text, differentiable, and the model's own output object.

        The scores in that output are not used: transformers looks for the last token that is not padding by its id,
        which is wrong for texts that end in that token and for several texts in a row.

        Args:
            model: What the trainer wrapped; it is called, not unwrapped, so that its hooks run.
            inputs: Keyword arguments of the model's forward.
            last_positions: The last token of each text, as an index into the flattened [rows * tokens].
                Shape [sequences].

        Returns:
            Scores in float32, shape [sequences], and the output, with `aux_loss` where routers are reported.
        """
        with HiddenStates(self) as states:
            output = model(**{"use_cache": False, **inputs})
        aux_loss = _balance_routers(states.output, find_base_model(model), inputs.get("attention_mask"))
        if aux_loss is not None:
            output["aux_loss"] = aux_loss
        last = states.last.flatten(0, 1).index_select(0, last_positions.to(states.last.device))
        scores: Tensor = self.module(last)
        return scores.float().squeeze(-1), output


def _balance_routers(body_output: Any, model: PreTrainedModel, mask: Tensor | None) -> Tensor | None:
    """Return the load-balancing loss of a mixture of experts, which transformers' classifiers leave out.

    Args:
        body_output: Of the body; has the logits of its routers where `output_router_logits` is set.
        model: Knows how many experts see a token.
        mask: Padding mask of the batch, if there is one. Shape [rows, tokens].
    """
    router_logits = body_output.get("router_logits")
    if not router_logits:
        return None
    chosen = int(model.config.get_text_config().num_experts_per_tok)
    loss: Tensor = load_balancing_loss_func(tuple(router_logits), router_logits[0].shape[-1], chosen, mask)
    return loss


def resolve_score_head(model: nn.Module, precision: Precision | None = None) -> ScoreHead:
    """Find the score head of a reward model, and prove with eight tokens that it is what the model applies itself.

    Args:
        model: A sequence classifier with one label, also wrapped by peft.
        precision: Of the run; needed where trained and frozen weights differ in type.

    Raises:
        ModelError: The model has no score head, or does something else between its body and its scores.
    """
    base = find_base_model(model)
    module = dict(base.named_children()).get("score")
    name = type(base).__name__
    if module is None:
        raise ModelError(f"model: {name} has no score head, so it cannot rate texts. Use a reward model.")
    head = ScoreHead(module, base.get_decoder())
    pad = base.config.get_text_config().pad_token_id
    ids = [token for token in range(1, _PROBE_TOKENS + 2) if token != pad][:_PROBE_TOKENS]
    inputs = {"input_ids": torch.tensor([ids], device=base.device) % base.config.get_text_config().vocab_size}
    last = torch.tensor([len(ids) - 1], device=base.device)
    context = (precision or Precision(base.dtype, base.dtype, None, "")).autocast(base.device)
    with evaluation_mode(model), torch.no_grad(), context:
        expected = model(**inputs, use_cache=False).logits.float().flatten()
        found, _ = head.score(model, inputs, last)
    exact = base.dtype == torch.float32 and (precision is None or precision.compute_dtype == torch.float32)
    difference = (found - expected).abs().max().item() if found.shape == expected.shape else torch.inf
    if not difference <= _TOLERANCE[exact] * max(1.0, expected.abs().max().item()):
        raise ModelError(
            f"model: the score head of {name} applied to its hidden states is {difference:.3g} away from its own "
            "scores, so this family cannot be used as a reward model yet."
        )
    return head
