"""Rules about several data sets: how they are mixed, and how much of each is taken."""

from collections.abc import Iterator

from tunesmith.config.rules.registry import Finding, Question, rule

_ROUNDING = 1e-4


@rule()
def probabilities_are_for_interleaving(question: Question) -> Iterator[Finding]:
    """Probabilities need something to draw from, one for each data set, and add up to 1."""
    data = question.config.data
    if not data.interleave_probs:
        return
    if data.mix_strategy == "concat":
        yield Finding(
            ("interleave_probs", "mix_strategy"),
            f"{question.cite('interleave_probs')} draws rows, and `mix_strategy: concat` takes all; remove it or "
            "choose interleave_under, interleave_over or interleave_once.",
        )
    if len(data.interleave_probs) != len(data.dataset):
        yield Finding(
            ("interleave_probs", "dataset"),
            f"{question.cite('interleave_probs')} has {len(data.interleave_probs)} values and `dataset` names "
            f"{len(data.dataset)}; give one for each.",
        )
    total = sum(data.interleave_probs)
    if abs(total - 1) > _ROUNDING:
        yield Finding(
            ("interleave_probs",),
            f"{question.cite('interleave_probs')} adds up to {total:g}; probabilities add up to 1.",
        )


@rule()
def samples_are_one_number_or_one_for_each(question: Question) -> Iterator[Finding]:
    """A list of caps is as long as the list of data sets."""
    data = question.config.data
    if not isinstance(data.max_samples, tuple):
        return
    allowed = sorted({len(data.dataset), len(data.dataset) + len(data.eval_dataset)})
    if len(data.max_samples) not in allowed:
        yield Finding(
            ("max_samples", "dataset", "eval_dataset"),
            f"{question.cite('max_samples')} has {len(data.max_samples)} values; give one for all, or one for each of "
            f"`dataset`, or of `dataset` and `eval_dataset` ({' or '.join(map(str, allowed))}).",
        )
