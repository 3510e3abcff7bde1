"""What packing saves: the same rows packed, padded to the limit, and padded to the longest of rows of like length.

Run `python -m benchmarks.packing_throughput --model DIR`; README.md beside this file defines every figure.
"""

import argparse
import sys
from pathlib import Path

from benchmarks import comparison, rows, runner
from benchmarks.contestants.job import Job
from benchmarks.runner import Contestant

BARS = {"padded to the limit": 2.3, "grouped by length": 1.25}
"""How much faster packed rows have to be, in real tokens a second."""

_LEAST_ROWS = 1000


def main() -> None:
    """Run the comparison and print it."""
    options = _parse_options()
    # As many rows as fill the limit, so that every contestant computes about the same positions per step.
    rows_per_limit = max(1, options.cutoff_len // options.mean_tokens)
    contestants = [
        Contestant("packed", "tunesmith", sys.executable, layout="packed", batch=1),
        Contestant("padded to the limit", "tunesmith", sys.executable, layout="limit", batch=1),
        Contestant("grouped by length", "tunesmith", sys.executable, layout="grouped", batch=rows_per_limit),
        Contestant("padding-free", "tunesmith", sys.executable, layout="auto", batch=rows_per_limit),
    ]
    results = comparison.run_comparison(
        options, contestants, lambda folder: _prepare_job(options, folder, rows_per_limit)
    )
    packed, *others = results.summaries
    for label in others:
        bar = f" (bar {BARS[label]}x)" if label in BARS else ""
        print(runner.render_ratio(f"packed against {label}{bar}", results.summaries[packed], results.summaries[label]))


def _parse_options() -> argparse.Namespace:
    parser = comparison.build_parser(__doc__, steps=8, warmup_steps=2, cutoff_len=2048)
    parser.add_argument("--mean-tokens", type=int, default=320, help="average length of a row")
    return parser.parse_args()


def _prepare_job(options: argparse.Namespace, folder: Path, rows_per_limit: int) -> Job:
    # At least a whole data set: groups of like length, and packed rows, are as good as the choice among rows allows.
    count = max(_LEAST_ROWS, 2 * options.steps * (rows_per_limit + 1))
    chosen = rows.make_rows_of_mean(count, options.mean_tokens, options.cutoff_len, options.seed)
    return comparison.write_job(options, folder, chosen, batch=1)


if __name__ == "__main__":
    main()
