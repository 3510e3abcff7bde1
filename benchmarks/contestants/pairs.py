"""What contestants that learn from pairs have in common: how their batches are counted."""

from typing import Any

from benchmarks.contestants.meter import LABEL_NOT_LEARNT, Meter


class PairMeter(Meter):
    """Counts the learnt tokens of completions, which are the same in every layout of the same pairs."""

    def _count(self, micro_batches: list[dict[str, Any]]) -> None:
        if not micro_batches:
            return
        self.padded_tokens.append(sum(batch["input_ids"].numel() for batch in micro_batches))
        self.real_tokens.append(sum(_count_real(batch) for batch in micro_batches))
        self.trained_tokens.append(sum(_count_learnt(batch) for batch in micro_batches))

    def report(self) -> dict[str, object]:
        """Return what was measured, with the pairs of the measured steps."""
        found = super().report()
        steps = found["steps"]
        assert isinstance(steps, int)
        return {**found, "pairs": steps * self.job.batch}


def _count_real(batch: dict[str, Any]) -> int:
    mask = batch.get("attention_mask")
    return int(batch["input_ids"].numel() if mask is None else (mask != 0).sum())


def _count_learnt(batch: dict[str, Any]) -> int:
    if "completion_positions" in batch:  # Tunesmith
        return int(batch["completion_positions"].numel())
    if "completion_mask" in batch:  # TRL
        return int(batch["completion_mask"].sum())
    return int((batch["labels"] != LABEL_NOT_LEARNT).sum())
