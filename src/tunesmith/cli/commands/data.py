"""`tunesmith data`: prepare the data of runs, and report what is in them, without training."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tunesmith.cli import output
from tunesmith.cli.actions import run_action
from tunesmith.cli.data_arguments import load_data_run
from tunesmith.cli.flags import take_switches, take_value

if TYPE_CHECKING:
    from tunesmith.cli.data_arguments import DataRun
    from tunesmith.data.inspection.report import Inspection

HELP = """
usage: tunesmith data report FILE [--json] [--out FOLDER] [key=value ...]
       tunesmith data prepare FILE [key=value ...]

report   Print what becomes of every row: rows read, used, cut and dropped with reasons, tokens and the learnt share of
         them, lengths, repeated rows, and warnings about what will be regretted later. The lengths are drawn to
         data_lengths.png in FOLDER (output_dir, or this folder when it is not set).
prepare  Tokenize everything that the run will read, and keep it: in the cache, or in tokenized_path for a machine that
         has not got the raw files. Exit code 3 when there are rows for which the run would stop; all of them are
         counted, and the prepared rows are those of a run that leaves them out.

Only the tokenizer of the model is loaded; its weights need not be on this machine.

  tunesmith data report run.yaml
  tunesmith data report run.yaml --json > report.json
  tunesmith data prepare run.yaml preprocessing_num_workers=8
  tunesmith data prepare run.yaml tokenized_path=prepared/chats
"""

PICTURE = "data_lengths.png"


def run(arguments: Sequence[str]) -> int:
    """Run one of the actions and return the exit code."""
    return run_action(arguments, _ACTIONS, HELP)


def _report(words: list[str]) -> int:
    switches, words = take_switches(words, ["--json"])
    folder, words = take_value(words, "--out")
    run = load_data_run(words, purpose="report on")
    inspection = _inspect(run)
    picture = _draw(inspection, run, Path(folder or run.config.training.output_dir or "."))
    if "--json" in switches:
        output.show_json(inspection.to_dict(), indent=2)
        return 0
    output.show_text(inspection.render())
    output.show_text(f"\nThe lengths are drawn in {picture}.")
    return 0


def _inspect(run: "DataRun") -> "Inspection":
    from tunesmith.data.inspection.report import inspect_data
    from tunesmith.diagnostics.end_markers import find_untrained_end_markers

    template = run.preparation.template
    end_markers = () if template is None else template.end_markers
    warnings = [
        *find_untrained_end_markers(run.config, run.tokenizer, end_markers[:1]),
        *_find_bad_rows(run),
    ]
    return inspect_data(run.data, run.tokenizer, end_markers, further_warnings=warnings)


def _find_bad_rows(run: "DataRun") -> Iterator[str]:
    from tunesmith.data.formats.bad_rows import find_bad, render_remedies

    for spec, tally in run.held_to_settings():
        bad = find_bad(tally.dropped, spec)
        if bad:
            yield (
                f"{spec.name}: {sum(bad.values()):,} rows are not as they should be (see dropped: {', '.join(bad)}), "
                f"and this run stops for them. Correct them; {render_remedies(bad, spec)}."
            )


def _draw(inspection: "Inspection", run: "DataRun", folder: Path) -> Path:
    from tunesmith.data.inspection.lengths import draw_histogram

    folder.mkdir(parents=True, exist_ok=True)
    draw_histogram(inspection.histogram, run.config.data.cutoff_len, folder / PICTURE)
    return folder / PICTURE


def _prepare(words: list[str]) -> int:
    from tunesmith.data.formats.bad_rows import check_counted

    run = load_data_run(words, purpose="prepare", needs_columns=True)
    output.show_text(run.data.report.render())
    for item in run.data.sets:
        output.show_text(f"{item.spec.name}: {len(item.rows):,} examples in {item.rows.path}")
    for spec, tally in run.held_to_settings():
        check_counted(tally.dropped, tally.shown, spec)
    return 0


_ACTIONS: Mapping[str, Callable[[list[str]], int]] = {"report": _report, "prepare": _prepare}
