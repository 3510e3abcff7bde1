"""The reference policy, as a contract: what the policy is measured against."""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor, nn


class ReferencePolicy(Protocol):
    """Gives the log-probabilities of completions under the policy that training starts from or is held near to."""

    @property
    def equals_policy_at_start(self) -> bool:
        """Whether the policy and this are the same before the first step, so that every margin is 0."""
        ...

    def describe(self) -> str:
        """Return in a few words what the reference is, for the plan."""
        ...

    def completion_log_probabilities(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the log-probability of each sequence's completion, without gradient. Shape [sequences], float32.

        Added up by the same `CompletionScorer` as that of the policy, or read from `reference_log_probabilities` of
        the batch, where it was computed beforehand.

        Args:
            model: The policy, in whatever wrappers; a reference that is the policy without its adapter runs it.
            batch: Of `data.batches.CompletionBatch`.
        """
        ...
