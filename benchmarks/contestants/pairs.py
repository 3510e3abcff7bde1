"""What contestants that learn from pairs have in common: how their batches are counted."""

from typing import Any

from benchmarks.contestants.meter import Meter


class PairMeter(Meter):
    """Counts the learnt tokens of completions, which are the same in every layout of the same pairs."""

    def report(self) -> dict[str, object]:
        """Return what was measured, with the pairs of the measured steps."""
        found = super().report()
        steps = found["steps"]
        assert isinstance(steps, int)
        return {**found, "pairs": steps * self.job.batch}

    def _count_learnt(self, batch: dict[str, Any]) -> int:
        if "completion_positions" in batch:  # Tunesmith
            return int(batch["completion_positions"].numel())
        if "completion_mask" in batch:  # TRL
            return int(batch["completion_mask"].sum())
        return super()._count_learnt(batch)
