"""The account of every row: how many were read, used, cut and dropped, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from tunesmith.data.mixing import SetShare
from tunesmith.data.tokenization.encoded import Truncation

TRUNCATION_KINDS: tuple[str, ...] = get_args(Truncation)
NUM_SHOWN = 3
"""Rows shown for each reason of dropping."""

_QUANTILES = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@dataclass(slots=True)
class Tally:
    """Counts source rows while they are encoded; tallies of chunks add up to that of a data set."""

    read: int = 0
    used: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """Source rows by the reason for which they cannot be used."""

    shown: dict[str, list[str]] = field(default_factory=dict)
    """The first rows of each reason, in words."""

    truncated: dict[str, int] = field(default_factory=dict)
    """Source rows by what the token limit took from them; one row may count several times."""

    repaired: dict[str, int] = field(default_factory=dict)
    """Source rows in use by what was done to the order of their turns."""

    empty_answers: int = 0
    """Source rows in use with an answer that says nothing."""

    empty_shown: list[str] = field(default_factory=list)
    """The first of them, in words."""

    def drop(self, reason: str, shown: str) -> None:
        """Count a row that cannot be used."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        rows = self.shown.setdefault(reason, [])
        if len(rows) < NUM_SHOWN:
            rows.append(shown)

    def use(self, truncation: set[str]) -> None:
        """Count a row that became one or more examples."""
        self.used += 1
        for kind in truncation:
            self.truncated[kind] = self.truncated.get(kind, 0) + 1

    def note_repairs(self, repairs: Sequence[str]) -> None:
        """Count what was done to a row that is used."""
        for kind in repairs:
            self.repaired[kind] = self.repaired.get(kind, 0) + 1

    def note_empty(self, shown: str) -> None:
        """Count a row that is used and has an empty answer."""
        self.empty_answers += 1
        if len(self.empty_shown) < NUM_SHOWN:
            self.empty_shown.append(shown)

    def add(self, other: "Tally") -> None:
        """Add the counts of the rows that come next."""
        self.read += other.read
        self.used += other.used
        self.empty_answers += other.empty_answers
        self.empty_shown = [*self.empty_shown, *other.empty_shown][:NUM_SHOWN]
        counted = (
            (self.dropped, other.dropped),
            (self.truncated, other.truncated),
            (self.repaired, other.repaired),
        )
        for mine, theirs in counted:
            for key, count in theirs.items():
                mine[key] = mine.get(key, 0) + count
        for reason, rows in other.shown.items():
            self.shown[reason] = (self.shown.get(reason, []) + rows)[:NUM_SHOWN]

    def check(self, name: str) -> None:
        """Make sure that no row was lost on the way."""
        dropped = sum(self.dropped.values())
        if self.read != self.used + dropped:
            raise AssertionError(f"{name}: {self.read} rows read, but {self.used} used and {dropped} dropped")

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SetReport:
    """What became of one data set."""

    name: str
    role: str
    """`train` or `eval`."""

    read: int
    used: int
    dropped: Mapping[str, int]
    shown: Mapping[str, Sequence[str]]
    truncated: Mapping[str, int]
    """Rows by what they lost to `cutoff_len`: all kinds of `TRUNCATION_KINDS`, 0 where nothing was lost."""

    repaired: Mapping[str, int]
    """Rows by what was done to the order of their turns, see `turn_order_policy`."""

    empty_answers: int
    empty_shown: Sequence[str]
    examples: int
    """Tokenised rows; more than `used` where one conversation gives a row per answer."""

    tokens: int
    trained_tokens: int
    """Tokens that are the target of a prediction."""

    length_quantiles: Mapping[str, int]
    """Tokens per example: `min`, `p50`, `p90`, `p99`, `max`; empty without examples."""


@dataclass(frozen=True, slots=True)
class StreamReport:
    """A data set that is read while the run goes on, so that only its files are known before."""

    name: str
    files: int
    bytes: int
    """Size of all files as they are stored."""

    def render(self) -> str:
        """Return the report as a line."""
        files = "1 file" if self.files == 1 else f"{self.files:,} files"
        return f"  {self.name}: read as it comes from {files}, {self.bytes / 1e6:,.1f} MB"


@dataclass(frozen=True, slots=True)
class PackingReport:
    """How full the packed rows are."""

    packs: int
    capacity: int
    """Tokens that a pack may hold."""

    tokens: int
    samples: int

    @property
    def fill(self) -> float:
        """Share of the room that holds real tokens, 0 to 1."""
        return self.tokens / (self.packs * self.capacity) if self.packs else 0.0


@dataclass(frozen=True, slots=True)
class DataReport:
    """The account of all data of a run, written to its folder and shown once."""

    sets: tuple[SetReport, ...]
    train_examples: int = 0
    eval_examples: int = 0
    held_back_examples: int = 0
    """Examples moved from training to evaluation by `val_size`; part of `eval_examples`."""

    packing: PackingReport | None = None
    streams: tuple[StreamReport, ...] = ()
    max_samples: int | tuple[int, ...] | None = None
    mix_strategy: str = "concat"
    shares: tuple[SetShare, ...] = ()
    """What training takes of each data set, where that is not simply every row once."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        values = asdict(self)
        if self.packing is not None:
            values["packing"]["fill"] = round(self.packing.fill, 4)
        return values

    def render(self) -> str:
        """Return the report as a few lines of text for a terminal."""
        lines = [stream.render() for stream in self.streams]
        if self.sets:
            lines.append(_HEADER.format("data set", *_COLUMNS))
        for report in self.sets:
            lines.extend(_render_set(report))
        if self.max_samples is not None:
            lines.append(f"  max_samples: only the {_first_rows(self.max_samples)} of each data set")
        lines.extend(f"  {self.mix_strategy}, {share.render()}" for share in self.shares)
        if self.held_back_examples:
            rows = "1 row" if self.held_back_examples == 1 else f"{self.held_back_examples:,} rows"
            lines.append(f"  held back for evaluation: {rows}; {self.train_examples:,} left to train on")
        if self.packing is not None:
            lines.append(
                f"  packed: {self.packing.samples:,} samples in {self.packing.packs:,} rows of "
                f"{self.packing.capacity:,} tokens, {self.packing.fill:.1%} full"
            )
        return "\n".join(lines)


def _first_rows(count: int | tuple[int, ...]) -> str:
    if isinstance(count, tuple):
        return f"first {', '.join(f'{number:,}' for number in count)} rows"
    return "first row" if count == 1 else f"first {count:,} rows"


_COLUMNS = ("use", "read", "used", "dropped", "tokens", "trained", "median", "longest")
_HEADER = "{:<24} {:<5} {:>9} {:>9} {:>8} {:>13} {:>13} {:>7} {:>8}"


def build_set_report(
    name: str, role: str, tally: Tally, lengths: NDArray[np.int64], trained: NDArray[np.int64]
) -> SetReport:
    """Sum up one data set.

    Args:
        name: Name in the catalogue.
        role: `train` or `eval`.
        tally: Counts of its source rows.
        lengths: Tokens of each example.
        trained: Targets of each example.
    """
    quantiles: dict[str, int] = {}
    if len(lengths):
        levels = np.quantile(lengths, list(_QUANTILES.values()), method="higher")
        quantiles = {name: int(level) for name, level in zip(_QUANTILES, levels, strict=True)}
    return SetReport(
        name=name,
        role=role,
        read=tally.read,
        used=tally.used,
        dropped=dict(tally.dropped),
        shown={reason: list(rows) for reason, rows in tally.shown.items()},
        truncated={kind: tally.truncated.get(kind, 0) for kind in TRUNCATION_KINDS},
        repaired=dict(tally.repaired),
        empty_answers=tally.empty_answers,
        empty_shown=list(tally.empty_shown),
        examples=len(lengths),
        tokens=int(lengths.sum()),
        trained_tokens=int(trained.sum()),
        length_quantiles=quantiles,
    )


def describe_dropped(tally: Tally | SetReport) -> str:
    """Return the reasons of dropping with their counts and first rows, most frequent first, one per line."""
    reasons = sorted(tally.dropped, key=lambda reason: -tally.dropped[reason])
    return "\n".join(
        f"  {reason}: {tally.dropped[reason]:,} ({'; '.join(tally.shown.get(reason, []))})" for reason in reasons
    )


def _render_set(report: SetReport) -> list[str]:
    lines = [
        _HEADER.format(
            report.name,
            report.role,
            f"{report.read:,}",
            f"{report.used:,}",
            f"{report.read - report.used:,}",
            f"{report.tokens:,}",
            f"{report.trained_tokens:,}",
            f"{report.length_quantiles.get('p50', 0):,}",
            f"{report.length_quantiles.get('max', 0):,}",
        )
    ]
    if report.dropped:
        lines.extend(f"  dropped, {line.strip()}" for line in describe_dropped(report).splitlines())
    kinds = [f"{kind.replace('_', ' ')} {count:,}" for kind, count in sorted(report.truncated.items()) if count]
    if kinds:
        lines.append(f"  cut to the token limit: {', '.join(kinds)}")
    if report.repaired:
        lines.append("  " + ", ".join(f"{kind}: {count:,}" for kind, count in sorted(report.repaired.items())))
    if report.empty_answers:
        lines.append(f"  empty answers: {report.empty_answers:,} ({'; '.join(report.empty_shown)})")
    return lines
