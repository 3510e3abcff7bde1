"""Learn the next token: the objective of continued pre-training and of supervised fine-tuning.

The two differ in which positions carry a label, which the data engine decides; here they are one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tunesmith.models.heads import LanguageHead, run_body
from tunesmith.objectives.base import LossSum, Measured
from tunesmith.objectives.chunked_head import HeadLoss, chunked_head_loss, resolve_chunk_tokens
from tunesmith.objectives.losses.cross_entropy import token_cross_entropy
from tunesmith.objectives.positions import Predictions, count_predictions, find_predictions


@dataclass(frozen=True, slots=True)
class NextTokenObjective:
    """Cross entropy summed over the labelled tokens of a batch."""

    head: LanguageHead
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    chunk_tokens: int | None = None
    """Labelled positions whose logits exist at the same time; `None` picks by vocabulary and device."""

    router_loss_weight: float = 0.0
    """Weight of the load-balancing loss that a mixture-of-experts model returns, see `router_loss_weight`."""

    @property
    def loss_is_per_token(self) -> bool:
        """Every item is a token."""
        return True

    @property
    def measures_its_own_rows(self) -> bool:
        """It measures nothing."""
        return False

    def measure(self, model: nn.Module, batches: Iterable[Mapping[str, Tensor]]) -> Measured:
        """Return nothing: a token's loss depends on no other."""
        return Measured()

    def count_items(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the number of labelled tokens that have a token before them."""
        return count_predictions(batch)

    def compute(self, model: nn.Module, batch: Mapping[str, Tensor]) -> LossSum:
        """Run the model and add up the loss of every labelled token.

        In evaluation mode, without label smoothing and z-loss, so that losses of different runs can be compared, and
        with the metric `correct`: how many labels were the most likely token.
        """
        inputs = {key: value for key, value in batch.items() if key != "labels"}
        found = find_predictions(batch)
        if self.head.is_separable:
            run = run_body(model, self.head, inputs)
            output, loss = run.output, self._head_loss(run.hidden, found, is_training=model.training)
        else:
            output = model(**inputs)
            own = output.logits[:, -inputs["input_ids"].shape[1] :]  # a learnt prompt stands in front of the text
            loss = self._whole_logits_loss(own, found, is_training=model.training)
        items = torch.tensor(found.labels.numel(), device=found.labels.device)
        total = loss.total
        if model.training:
            total = total + weigh_router_loss(output, items, self.router_loss_weight)
        return LossSum(total, items, {} if loss.correct is None else {"correct": loss.correct})

    def _head_loss(self, hidden: Tensor, found: Predictions, *, is_training: bool) -> HeadLoss:
        selected = hidden.flatten(0, 1).index_select(0, found.positions.to(hidden.device))
        vocabulary = vocabulary_size(self.head.module)
        return chunked_head_loss(
            selected,
            found.labels,
            self.head,
            self._token_loss if is_training else token_cross_entropy,
            chunk_tokens=self.chunk_tokens or resolve_chunk_tokens(vocabulary, hidden.device),
        )

    def _whole_logits_loss(self, logits: Tensor, found: Predictions, *, is_training: bool) -> HeadLoss:
        selected = logits.flatten(0, 1).index_select(0, found.positions.to(logits.device))
        loss = self._token_loss if is_training else token_cross_entropy
        correct = None if torch.is_grad_enabled() else (selected.argmax(dim=-1) == found.labels).sum()
        return HeadLoss(loss(selected, found.labels).sum(), correct)

    def _token_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return token_cross_entropy(logits, labels, label_smoothing=self.label_smoothing, z_loss=self.z_loss)


def weigh_router_loss(output: Any, items: Tensor, weight: float) -> Tensor | float:
    """Return the router's loss, a mean over the batch, weighed by the batch's items: the trainer divides by all items.

    Args:
        output: What the model returned.
        items: Number of items of the batch.
        weight: See `router_loss_weight`.
    """
    if not weight or output.get("aux_loss") is None:
        return 0.0
    aux_loss: Tensor = output["aux_loss"]
    return weight * aux_loss * items


def router_loss_weight(model_settings: Mapping[str, Any]) -> float:
    """Return the weight of the router's load-balancing loss, 0 for dense models and where routers are not reported.

    Args:
        model_settings: The model's configuration as a mapping (`config.to_dict()`).
    """
    if not model_settings.get("output_router_logits", False):
        return 0.0
    return float(model_settings.get("router_aux_loss_coef") or 0.0)


def vocabulary_size(module: nn.Module) -> int:
    """Return the widest output of a head, whatever adapters are wrapped around it."""
    return max((parameter.shape[0] for parameter in module.parameters() if parameter.dim() > 1), default=1)
