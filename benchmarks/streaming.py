"""Streaming: how soon the first batch comes, how fast the rest, and what going on costs early and late.

Run `python -m benchmarks.streaming --tokenizer DIR --rows 1000000`. A JSON Lines file of made rows is written to a
temporary folder (see `benchmarks.rows`), and read by one process without workers:

    first batch   from opening the stream to the first batch of 8 rows
    rows          per CPU second, of 20,000: read, shuffled, rendered, tokenized and collated
    resume        from loading the place of a checkpoint to the next batch, early and late in the file
    waiting       share of the time that something waits which takes as long as a model for each batch, with workers as
                  the stream finds out by itself, and with fixed numbers of them
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from transformers import AutoTokenizer

from benchmarks import machine, rows
from tunesmith.config import load_config
from tunesmith.data.batches import Batch
from tunesmith.data.chat import resolve_template
from tunesmith.data.collators import build_collator
from tunesmith.data.preparation import Preparation
from tunesmith.data.streaming.loader import StreamLoader
from tunesmith.data.streaming.preparation import open_stream
from tunesmith.data.streaming.source import StreamSource
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.io.settings import LoaderPolicy, LoaderSettings
from tunesmith.training.streaming import StreamFeed

_BATCH_ROWS = 8


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of a tokenizer that knows <|im_end|>")
    parser.add_argument("--packing", action="store_true")
    parser.add_argument("--buffer-size", type=int, default=16384)
    parser.add_argument("--step-ms", type=float, nargs="*", default=[4.0], help="of the models that are fed")
    parser.add_argument("--seconds", type=float, default=8.0, help="for which waiting is measured")
    parser.add_argument("--settle", type=float, default=15.0, help="what a stream gets before that")
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
    for milliseconds in options.step_ms:
        _measure_waiting(source, milliseconds / 1000, options)


def _measure_waiting(source: StreamSource, step_seconds: float, options: argparse.Namespace) -> None:
    auto = LoaderPolicy(tunes_workers=True, tunes_prefetch=True)
    policies = {"auto": auto, **{str(number): LoaderPolicy(start=LoaderSettings(number)) for number in (0, 1, 2)}}
    for name, policy in policies.items():
        collator = build_collator("flat", pad_token_id=0)
        feed = StreamFeed(source, collator, policy, batch_size=_BATCH_ROWS, ranks=Ranks(), drop_last=False)
        batches = iter(feed)
        _feed(batches, step_seconds, options.settle)
        waited, taken = _feed(batches, step_seconds, options.seconds)
        workers = feed.pieces.settings.render()
        feed.close()
        print(
            f"step of {1000 * step_seconds:g} ms, workers {name:<5} {taken / options.seconds:7.1f} batches/s, "
            f"waiting {waited / options.seconds:6.1%} ({workers})",
            flush=True,
        )


def _feed(batches: Iterator[Batch], step_seconds: float, seconds: float) -> tuple[float, int]:
    """Take batches for some time, and return how long was waited for them and how many they were."""
    waited, taken, end = 0.0, 0, time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        next(batches)
        waited += time.perf_counter() - start
        taken += 1
        time.sleep(step_seconds)
    return waited, taken


if __name__ == "__main__":
    main()
