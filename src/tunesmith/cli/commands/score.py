"""`tunesmith score`: rate the rows of a file with a reward model."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tunesmith.cli import output
from tunesmith.cli.flags import take_value
from tunesmith.cli.model_arguments import expand_model_arguments
from tunesmith.errors import ConfigError

if TYPE_CHECKING:
    from tunesmith.evaluation.scores import ScoredRow

HELP = """
usage: tunesmith score MODEL ROWS [--adapter ADAPTER ...] [--output FILE] [key=value ...]

Rate every row with a reward model. MODEL is what a run with `stage: rm` wrote (an adapter's folder names its model
itself), a sequence classifier with one label, or a folder with LLaMA-Factory's value head. ROWS is a file (json,
jsonl, parquet ...) or a data set of the catalogue: conversations, rows with a chosen and a rejected completion, or
plain texts in a column `text`. One line per row is written, to standard output or to FILE, which appears (or takes the
place of one that is there) when all rows are rated:

  {"row": 0, "score": 1.25}
  {"row": 1, "chosen": 0.5, "rejected": -0.75}
  {"row": 2, "dropped": "no answer"}
  {"row": 3, "score": 0.125, "cut": true}         longer than cutoff_len: not all of it was read

  tunesmith score outputs/reward pairs.json
  tunesmith score outputs/reward answers.jsonl --output scores.jsonl per_device_eval_batch_size=16
  tunesmith score models/base --adapter outputs/reward pairs.json cutoff_len=4096

Settings: template, cutoff_len, per_device_eval_batch_size, max_samples, infer_dtype, dataset_dir, dataset_info and
all others that concern a model or its rows (docs/options.md).
"""

_FLAGS = {"--adapter": "adapter_name_or_path"}


def run(arguments: Sequence[str]) -> int:
    """Load the model, rate the rows, and write a line for each."""
    from tunesmith.config import load_config, parse_command_line

    destination, words = take_value(arguments, "--output")
    words = expand_model_arguments(words, positional=("model_name_or_path", "dataset"), flags=_FLAGS)
    source, overrides = parse_command_line(words)
    config = load_config(source, overrides, purpose="generate")
    if len(config.data.dataset) != 1:
        raise ConfigError(
            f"One file or data set is rated at a time, and {len(config.data.dataset)} are named. Name one."
        )
    from tunesmith.evaluation.scores import resolve_score_rows, score_rows
    from tunesmith.inference.reward import load_reward_scorer

    spec = resolve_score_rows(config, config.data.dataset[0])
    if destination is not None:
        _check_destination(Path(destination), spec.files)
    scorer = load_reward_scorer(config)
    rows = score_rows(scorer, spec, config, shows_progress=sys.stderr.isatty() and destination is not None)
    summary = _Summary()
    if destination is None:
        for row in summary.counted(rows):
            output.show_json(row.to_dict())
    else:
        from tunesmith.runtime.files import atomic_file

        with atomic_file(destination) as beside, beside.open("w", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(row.to_dict(), ensure_ascii=False)}\n" for row in summary.counted(rows))
        output.show_text(f"{scorer.note}. {summary.render()} Written to {destination}.")
    return 0


def _check_destination(file: Path, sources: Sequence[Path]) -> None:
    """Make sure, before anything is rated, that scores can be written to a file, and that it holds no rows to rate."""
    from tunesmith.runtime.files import check_writable

    if file.is_dir():
        raise ConfigError(f"--output is {file}, which is a folder. Name a file, such as {file / 'scores.jsonl'}.")
    if any(source.resolve() == file.resolve() for source in sources):
        raise ConfigError(f"--output is {file}, which holds the rows that are to be rated. Name another file.")
    check_writable(file.absolute().parent, "--output")


class _Summary:
    """Counts what became of the rows."""

    def __init__(self) -> None:
        self.scored = self.dropped = self.cut = self.pairs = self.agreeing = 0

    def counted(self, rows: "Iterator[ScoredRow]") -> "Iterator[ScoredRow]":
        """Yield rows as they come, and count them."""
        for row in rows:
            self.scored += not row.dropped
            self.dropped += bool(row.dropped)
            self.cut += row.is_cut
            if "chosen" in row.scores:
                self.pairs += 1
                self.agreeing += row.scores["chosen"] > row.scores["rejected"]
            yield row

    def render(self) -> str:
        """Return the sentence that is shown at the end."""
        parts = [f"{self.scored:,} rows rated"]
        parts += [f"{self.dropped:,} could not be used"] if self.dropped else []
        parts += [f"{self.cut:,} were longer than cutoff_len and cut"] if self.cut else []
        if self.pairs:
            parts.append(f"the chosen completion is rated higher in {self.agreeing / self.pairs:.1%} of them")
        return f"{', '.join(parts)}."
