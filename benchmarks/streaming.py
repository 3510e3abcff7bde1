"""Streaming: how soon the first batch comes, how fast the rest, and what going on costs early and late.

Run `python -m benchmarks.streaming --tokenizer DIR --rows 1000000`. A JSON Lines file of made rows is written to a
temporary folder (see `benchmarks.rows`), and read by one process without workers:

    first batch   from opening the stream to the first batch of 8 rows
    rows          per CPU second, of 20,000: read, shuffled, rendered, tokenized and collated
    resume        from loading the place of a checkpoint to the next batch, early and late in the file
"""

import argparse
import json
import tempfile
import time
from itertools import islice
from pathlib import Path

from transformers import AutoTokenizer

from benchmarks import machine, rows
from tunesmith.config import load_config
from tunesmith.data.chat import resolve_template
from tunesmith.data.collators import build_collator
from tunesmith.data.preparation import Preparation
from tunesmith.data.streaming.loader import StreamLoader
from tunesmith.data.streaming.preparation import open_stream
from tunesmith.data.streaming.source import StreamSource
from tunesmith.runtime.ranks import Ranks

_BATCH_ROWS = 8


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of a tokenizer that knows <|im_end|>")
    parser.add_argument("--packing", action="store_true")
    parser.add_argument("--buffer-size", type=int, default=16384)
    options = parser.parse_args()
    print(machine.render_machine(machine.describe_machine()))
    with tempfile.TemporaryDirectory(prefix="benchmark-streaming-") as folder:
        path = Path(folder) / "rows.jsonl"
        _write_rows(path, options.rows)
        source = _open(path, options)
        _measure(source, options, path.stat().st_size)


def _write_rows(path: Path, count: int) -> None:
    made = rows.make_rows(min(count, 20_000), 0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            file.write(json.dumps(made[number % len(made)]) + "\n")


def _open(path: Path, options: argparse.Namespace) -> StreamSource:
    settings = {
        "model_name_or_path": str(options.tokenizer),
        "stage": "sft",
        "template": "chatml",
        "dataset": str(path),
        "streaming": True,
        "max_steps": 1,
        "packing": options.packing,
        "buffer_size": options.buffer_size,
    }
    config = load_config(settings, environ={}, purpose="read")
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    template = resolve_template(config.data, tokenizer)
    return open_stream(config, Preparation(config, tokenizer, template, Ranks()))


def _loader(source: StreamSource) -> StreamLoader:
    collator = build_collator("flat", pad_token_id=0)
    return StreamLoader(source, collator, batch_size=_BATCH_ROWS, ranks=Ranks())


def _take(loader: StreamLoader, count: int) -> float:
    """Use so many batches and return the seconds that they took."""
    start = time.perf_counter()
    for batch in islice(loader, count):
        loader.advance(batch)
    return time.perf_counter() - start


def _measure(source: StreamSource, options: argparse.Namespace, size: int) -> None:
    print(f"{options.rows:,} rows, {size / 1e6:,.0f} MB")
    print(f"first batch           {_take(_loader(source), 1):8.2f} s")
    loader = _loader(source)
    before = time.process_time()
    _take(loader, 20_000 // _BATCH_ROWS)
    print(f"rows per CPU second   {loader.tallies[0].read / (time.process_time() - before):8,.0f}")
    for share in (0.0, 0.5, 0.95):
        loader = _loader(source)
        batches = max(10, int(share * options.rows / _BATCH_ROWS))
        if options.packing:
            batches = max(10, batches // 8)
        _take(loader, batches)
        state = json.dumps(loader.state())
        other = _loader(source)
        start = time.perf_counter()
        other.load(json.loads(state))
        _take(other, 1)
        print(f"resume after {batches:8,} {time.perf_counter() - start:8.2f} s, {len(state):,} bytes of state")


if __name__ == "__main__":
    main()
