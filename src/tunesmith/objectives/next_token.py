"""Learn the next token: the objective of continued pre-training and of supervised fine-tuning.

The two differ in which positions carry a label, which the data engine decides; here they are one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tunesmith.models.heads import LanguageHead, run_body
from tunesmith.objectives.base import LossSum, Measured
from tunesmith.objectives.chunked_head import HeadLoss, chunked_head_loss, resolve_chunk_tokens
from tunesmith.objectives.losses.cross_entropy import token_cross_entropy
from tunesmith.objectives.positions import Predictions, count_predictions, find_predictions
from tunesmith.objectives.router_loss import weigh_router_loss


@dataclass(frozen=True, slots=True)
class NextTokenObjective:
    """Cross entropy summed over the labelled tokens of a batch."""

    head: LanguageHead
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    chunk_tokens: int | None = None
    """Labelled positions whose logits exist at the same time; `None` picks by vocabulary and device."""

    router_loss_weight: float = 0.0
    """Weight of the load-balancing loss that a mixture-of-experts model returns, see `router_loss`."""

    loss_is_per_token: ClassVar[bool] = True
    measures_its_own_rows: ClassVar[bool] = False

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
        return chunked_head_loss(
            selected,
            found.labels,
            self.head,
            self._token_loss if is_training else token_cross_entropy,
            chunk_tokens=self.chunk_tokens or resolve_chunk_tokens(self.head.module, hidden.device),
        )

    def _whole_logits_loss(self, logits: Tensor, found: Predictions, *, is_training: bool) -> HeadLoss:
        selected = logits.flatten(0, 1).index_select(0, found.positions.to(logits.device))
        loss = self._token_loss if is_training else token_cross_entropy
        correct = None if torch.is_grad_enabled() else (selected.argmax(dim=-1) == found.labels).sum()
        return HeadLoss(loss(selected, found.labels).sum(), correct)

    def _token_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return token_cross_entropy(logits, labels, label_smoothing=self.label_smoothing, z_loss=self.z_loss)
