"""Learn to score completions as people rank them: stage `rm`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn

from tunesmith.objectives.base import LossSum, Measured
from tunesmith.objectives.completions import count_items, mean_of, model_inputs
from tunesmith.objectives.losses.preference import bradley_terry_loss, centering_loss
from tunesmith.objectives.router_loss import weigh_router_loss


class SequenceScorer(Protocol):
    """Gives each sequence of a batch one score, by a head on the hidden state of its last token."""

    def score(self, model: nn.Module, inputs: Mapping[str, Tensor], last_positions: Tensor) -> tuple[Tensor, Any]:
        """Run the model and return the scores and its own output object (router losses and the like).

        Args:
            model: The reward model, in whatever wrappers.
            inputs: What the model is called with.
            last_positions: The last token of each sequence, in the flattened [rows * tokens]. Shape [sequences].

        Returns:
            Scores in float32, shape [sequences], and the output.
        """
        ...


@dataclass(frozen=True, slots=True)
class RewardObjective:
    """Bradley-Terry loss summed over pairs."""

    scorer: SequenceScorer
    center_coefficient: float = 0.0
    """Weight of the loss that keeps scores around zero."""

    router_loss_weight: float = 0.0

    loss_is_per_token: ClassVar[bool] = False
    measures_its_own_rows: ClassVar[bool] = False

    def count_items(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the number of pairs."""
        return count_items(batch)

    def measure(self, model: nn.Module, batches: Iterable[Mapping[str, Tensor]]) -> Measured:
        """Return nothing: a pair's loss depends on no other."""
        return Measured()

    def compute(self, model: nn.Module, batch: Mapping[str, Tensor]) -> LossSum:
        """Score both sequences of every pair and add up the losses, each with its row's margin."""
        scores, output = self.scorer.score(model, model_inputs(batch), batch["last_positions"])
        chosen, rejected, weights = scores[0::2], scores[1::2], batch["item_weights"]
        losses = bradley_terry_loss(chosen, rejected, batch["signals"])
        if self.center_coefficient and model.training:
            losses = losses + self.center_coefficient * centering_loss(chosen, rejected)
        items = count_items(batch)
        total = (losses * weights).sum()
        if model.training:
            total = total + weigh_router_loss(output, items, self.router_loss_weight)
        means = {
            "accuracy": mean_of((chosen > rejected) * weights, weights),
            "margin": mean_of((chosen - rejected) * weights, weights),
            "rewards/chosen": mean_of(chosen * weights, weights),
            "rewards/rejected": mean_of(rejected * weights, weights),
        }
        return LossSum(total, items, means=means)
