"""`tunesmith preview`: what the model will see of a row."""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tunesmith.cli import output
from tunesmith.cli.flags import take_count, take_switches
from tunesmith.errors import ConfigError

if TYPE_CHECKING:
    from tunesmith.data.inspection.preview import DroppedPreview, Preview, PreviewedSample
    from tunesmith.data.inspection.source_rows import SourceRow

HELP = """
usage: tunesmith preview FILE [--row N | --random K] [--json] [key=value ...]

Show what a training run will see: the raw row, the text its tokens make, which of it is learnt, and with packing
what shares a row with it. Without --row and --random it shows the first row. Nothing is trained, and only the
tokenizer of the model is loaded. Prepared rows go to the cache, where the run finds them.

  tunesmith preview run.yaml
  tunesmith preview run.yaml --row 17           row 17 of all rows read, also to hear why it was dropped
  tunesmith preview run.yaml --random 3         three rows drawn with the seed of the run
  tunesmith preview run.yaml --random 20 --json   the same with token ids, for a program
  tunesmith preview run.yaml cutoff_len=512     the same run with another setting

On a terminal what is learnt is green; elsewhere it stands between >>> and <<<.
"""


def run(arguments: Sequence[str]) -> int:
    """Prepare the data of a run and show some rows."""
    switches, words = take_switches(arguments, ["--json"])
    row, words = take_count(words, "--row")
    count, words = take_count(words, "--random")
    if row is not None and count is not None:
        raise ConfigError("--row shows one row and --random draws some; give one of them.")
    previews = _build(words, row, count)
    if "--json" in switches:
        output.show_json([preview.to_dict() for preview in previews])
        return 0
    for preview in previews:
        _show(preview)
    return 0


def _build(words: Sequence[str], row: int | None, count: int | None) -> "list[Preview | DroppedPreview]":
    from tunesmith.cli.data_arguments import load_data_run
    from tunesmith.data.inspection.preview import build_previews, build_stream_previews
    from tunesmith.data.inspection.source_rows import choose_rows

    run = load_data_run(words)
    if run.data.stream is not None:
        if row is not None:
            raise ConfigError(
                "--row: rows that are streamed have no numbers. Leave it out for the first, or add streaming=false."
            )
        return [*build_stream_previews(run.data.stream, count or 1, run.config, run.tokenizer)]
    chosen = choose_rows(run.data, row=row, count=count, seed=run.config.training.seed)
    return build_previews(run.data, chosen, run.config, run.tokenizer, run.preparation)


def _show(preview: "Preview | DroppedPreview") -> None:
    from tunesmith.data.inspection.preview import DroppedPreview

    if isinstance(preview, DroppedPreview):
        _show_source(preview.source)
        output.show_text(f"The model will not see this row: {preview.source.dropped}.")
        output.show_text()
        return
    kind = "packed row" if preview.is_packed else "row"
    output.show_text(f"=== {kind} {preview.place:,} to {preview.use}{_samples(preview)} ===")
    for number, sample in enumerate(preview.samples, start=1):
        if preview.is_packed:
            output.show_text(f"--- sample {number} of {len(preview.samples)} ---")
        if sample.source is not None:
            _show_source(sample.source)
        output.show_spans(_spans(sample))
        output.show_text(f"({sample.num_tokens:,} tokens, {sample.num_trained:,} learnt)")
        output.show_text()


def _samples(preview: "Preview") -> str:
    if not preview.is_packed:
        return ""
    tokens = sum(sample.num_tokens for sample in preview.samples)
    return f": {len(preview.samples)} samples, {tokens:,} tokens"


def _show_source(source: "SourceRow") -> None:
    output.show_text(f"data set {source.data_set}, {source.file}, {source.place}")
    text: Any = json.dumps(source.values, ensure_ascii=False, indent=2, default=str)
    output.show_text(output.escape_controls(text))


def _spans(sample: "PreviewedSample") -> Iterator[output.Span]:
    part = ""
    for run in sample.runs:
        if run.part != part:
            part = run.part
            yield output.Span(f"\n--- {part} ---\n", is_marked=False)
        yield output.Span(run.text, is_marked=run.is_trained)
