"""The account of a run's data with what is odd about it, for reading before the run."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from tunesmith.data.account import DataReport, SetReport
from tunesmith.data.inspection.contents import Duplicates, count_stripped_tokens, find_duplicates, row_digests
from tunesmith.data.inspection.lengths import LengthHistogram, build_histogram
from tunesmith.data.loading.datasets import ExampleDataset
from tunesmith.data.prepared import PreparedData, TrainableDataset, find_examples

CUT_SHARE = 0.01
"""Share of rows with a cut answer from which it is worth a warning."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What was found in the data of a run."""

    account: DataReport
    histogram: LengthHistogram
    """Of the examples to train on."""

    duplicates: Duplicates
    """Among the examples to train on; the groups as row ids."""

    shared_with_evaluation: int
    """Examples to evaluate on that are among those to train on."""

    stripped: Mapping[str, int]
    """Examples whose answers hold a special token that decoding strips, by token."""

    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            **self.account.to_dict(),
            "length_histogram": asdict(self.histogram),
            "duplicates": {
                "count": self.duplicates.count,
                "shown": [[row_id + 1 for row_id in group] for group in self.duplicates.shown],
            },
            "shared_with_evaluation": self.shared_with_evaluation,
            "stripped_tokens": dict(self.stripped),
            "warnings": list(self.warnings),
        }

    def render(self) -> str:
        """Return everything as text for a terminal."""
        lines = [self.account.render(), "", "Learnt"]
        lines.extend(_render_share(report) for report in self.account.sets)
        lines += ["", "Tokens per example", self.histogram.render(), "", "Repeated examples", self._render_duplicates()]
        if self.warnings:
            lines += ["", "Warnings", *(f"  - {warning}" for warning in self.warnings)]
        return "\n".join(lines)

    def _render_duplicates(self) -> str:
        if not self.duplicates.count:
            return "  none"
        groups = "; ".join(", ".join(f"{row_id + 1:,}" for row_id in group[:5]) for group in self.duplicates.shown)
        return f"  {self.duplicates.count:,} are equal to one before them; the first: rows {groups}"


def inspect_data(
    data: PreparedData,
    tokenizer: PreTrainedTokenizerBase,
    end_markers: Sequence[str] = (),
    *,
    further_warnings: Sequence[str] = (),
) -> Inspection:
    """Look through everything that was prepared.

    Args:
        data: Of the run.
        tokenizer: That made the ids.
        end_markers: Of the chat template; empty for plain text.
        further_warnings: What others have found, to stand with the rest.
    """
    digests = {item.rows.path: row_digests(item.rows) for item in data.sets}
    trained = _selected(data.train, digests)
    duplicates = find_duplicates(trained)
    measured = [_selected(dataset, digests) for dataset in data.evals.values()]
    shared = int(sum(np.isin(evaluated, trained).sum() for evaluated in measured))
    stripped: Counter[str] = Counter()
    for item in data.sets:
        stripped += count_stripped_tokens(item.rows, tokenizer, end_markers)
    examples = None if data.train is None else find_examples(data.train)
    return Inspection(
        account=data.report,
        histogram=build_histogram(np.zeros(0, dtype=np.int64) if examples is None else examples.lengths),
        duplicates=Duplicates(duplicates.count, _row_ids(duplicates, examples)),
        shared_with_evaluation=shared,
        stripped=dict(stripped),
        warnings=(*_find_warnings(data.report, stripped, shared), *further_warnings),
    )


def _find_warnings(account: DataReport, stripped: Mapping[str, int], shared: int) -> Iterator[str]:
    for report in account.sets:
        cut = report.truncated.get("answer_cut", 0)
        if report.used and cut > CUT_SHARE * report.used:
            yield (
                f"{report.name}: {cut:,} of {report.used:,} answers ({cut / report.used:.1%}) are cut, so the model "
                "learns beginnings without ends; raise cutoff_len, or leave long rows out."
            )
        if report.empty_answers:
            shown = f" ({'; '.join(report.empty_shown)})" if report.empty_shown else ""
            yield (
                f"{report.name}: {report.empty_answers:,} rows have an empty answer, which teaches the model to say "
                f"nothing{shown}; remove them unless that is meant."
            )
    for token, count in stripped.items():
        yield (
            f"{count:,} examples teach the special token {token} inside an answer; decoding strips special tokens, so "
            "whoever reads the answers will not see it. Make it an ordinary added token, or use other text."
        )
    if shared:
        yield (
            f"{shared:,} examples to evaluate on are also trained on, so the evaluation measures memory; "
            "remove them from one side."
        )


def _render_share(report: SetReport) -> str:
    share = report.trained_tokens / report.tokens if report.tokens else 0.0
    return f"  {report.name:<24} {report.trained_tokens:,} of {report.tokens:,} tokens, {share:.1%}"


def _selected(dataset: TrainableDataset | None, digests: Mapping[Any, NDArray[np.uint64]]) -> NDArray[np.uint64]:
    if dataset is None:
        return np.zeros(0, dtype=np.uint64)
    examples = find_examples(dataset)
    joined = np.concatenate([digests[part.rows.path] for part in examples.parts])
    return joined if examples.indices is None else joined[np.unique(examples.indices)]


def _row_ids(duplicates: Duplicates, examples: ExampleDataset | None) -> tuple[tuple[int, ...], ...]:
    if examples is None:
        return ()
    row_ids = ExampleDataset(examples.parts).row_ids
    if examples.indices is not None:  # a row that mixing repeats is no repeated row of the data
        row_ids = row_ids[np.unique(examples.indices)]
    return tuple(tuple(int(row_ids[place]) for place in group) for group in duplicates.shown)
