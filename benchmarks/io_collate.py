"""How many rows a second one core turns into batches, from memory-mapped Arrow files, without worker processes.

Run `python -m benchmarks.io_collate`; README.md beside this file says what is measured.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch

from benchmarks import machine
from tunesmith.data.collators import build_collator
from tunesmith.data.loading.datasets import ExampleDataset, Part
from tunesmith.data.loading.encoded import EncodedRows, EncodedRowsWriter, Place, build_chunk
from tunesmith.data.loading.samplers import RandomSampler
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.loaders import ProcessBatches, build_loader

BAR = 50_000


def main() -> None:
    """Measure every layout and batch size, and print the medians."""
    options = _parse_options()
    torch.set_num_threads(1)
    print(machine.render_machine(machine.describe_machine()))
    with tempfile.TemporaryDirectory(prefix="benchmark-collate-") as folder:
        rows = ExampleDataset([Part(_write_rows(Path(folder) / "rows.arrow", options.rows, options.mean_tokens), 0)])
        for layout in ("flat", "padded"):
            for size in options.batch_sizes:
                rates = [_measure(rows, layout, size) for _ in range(options.rounds)]
                verdict = "" if median(rates) >= BAR else f"  (below {BAR:,})"
                print(
                    f"{layout:>7}, batches of {size:>3}: {median(rates):>9,.0f} rows/s "
                    f"(from {min(rates):,.0f} to {max(rates):,.0f}){verdict}"
                )


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--mean-tokens", type=int, default=320)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def _write_rows(path: Path, num_rows: int, mean_tokens: int) -> EncodedRows:
    """Write chats of one to three turns: lengths of a log-normal distribution, a third of the tokens learnt."""
    rng = np.random.default_rng(0)
    writer = EncodedRowsWriter(path)
    for first in range(0, num_rows, 1000):
        lengths = np.clip(rng.lognormal(np.log(mean_tokens) - 0.18, 0.6, 1000), 16, 2048).astype(int)
        ids = [rng.integers(0, 32000, length, dtype=np.int32) for length in lengths]
        spans = [
            np.sort(rng.choice(length, 2 * turns, replace=False)).astype(np.int32)
            for length, turns in zip(lengths, rng.integers(1, 4, 1000), strict=True)
        ]
        writer.write(build_chunk(ids, spans, [Place(first + at, 0, first + at) for at in range(1000)]))
    writer.finish({})
    writer.close()
    return EncodedRows(path)


def _measure(rows: ExampleDataset, layout: str, size: int) -> float:
    """Return the rows of one epoch in random order for each second of processor time: one core's worth."""
    collator = build_collator(layout, pad_token_id=0)  # type: ignore[arg-type]
    loader = build_loader(rows, collator, ProcessBatches(RandomSampler(len(rows)), size, Ranks()))
    begin = time.process_time()
    for _ in loader:
        pass
    return len(rows) / (time.process_time() - begin)


if __name__ == "__main__":
    main()
