"""The same LoRA fine-tuning job here, in TRL and in LLaMA-Factory: tokens per second, memory, time to the first step.

Run `python -m benchmarks.sft_throughput --model DIR`; README.md beside this file defines every figure.
"""

import argparse
from pathlib import Path

from benchmarks import comparison, rows, runner
from benchmarks.contestants.job import Job


def main() -> None:
    """Run the comparison and print it."""
    options = _parse_options()
    contestants = comparison.list_contestants(options)
    results = comparison.run_comparison(options, contestants, lambda folder: _prepare_job(options, folder))
    for title, ours, theirs in comparison.list_duels(options, results.summaries):
        print(runner.render_ratio(title, ours, theirs))
    for problem in runner.check_same_work(results.reports):
        print(f"NOT COMPARABLE: {problem}")


def _parse_options() -> argparse.Namespace:
    parser = comparison.build_parser(__doc__, steps=10, warmup_steps=2, cutoff_len=512)
    parser.add_argument("--data", type=Path, help="JSON file of alpaca rows; default: rows made on the spot")
    comparison.add_peer_options(parser)
    return parser.parse_args()


def _prepare_job(options: argparse.Namespace, folder: Path) -> Job:
    count = options.steps * options.batch
    chosen = rows.load_rows(options.data, count, options.seed) if options.data else rows.make_rows(count, options.seed)
    return comparison.write_job(options, folder, chosen, batch=options.batch)


if __name__ == "__main__":
    main()
