"""What packing saves: the same rows packed, padded to the limit, and padded to the longest of rows of like length.

Run `python -m benchmarks.packing_throughput --model DIR`; README.md beside this file defines every figure.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks import machine, rows, runner
from benchmarks.contestants.job import Job
from benchmarks.models import link_model_as_fp32
from benchmarks.runner import Contestant

BARS = {"padded to the limit": 2.3, "grouped by length": 1.25}
"""How much faster packed rows have to be, in real tokens a second."""


def main() -> None:
    """Run the comparison and print it."""
    options = _parse_options()
    described = machine.describe_machine()
    print(machine.render_machine(described))
    # As many rows as fill the limit, so that every contestant computes about the same positions per step.
    rows_per_limit = max(1, options.cutoff_len // options.mean_tokens)
    contestants = [
        Contestant("packed", "tunesmith", sys.executable, layout="packed", batch=1),
        Contestant("padded to the limit", "tunesmith", sys.executable, layout="limit", batch=1),
        Contestant("grouped by length", "tunesmith", sys.executable, layout="grouped", batch=rows_per_limit),
        Contestant("padding-free", "tunesmith", sys.executable, layout="auto", batch=rows_per_limit),
    ]

    def keep(reports: runner.Reports) -> None:
        if options.output:
            medians = {label: runner.summarize(measured) for label, measured in reports.items()}
            runner.save_results(options.output, described, asdict(job), reports, medians)

    with tempfile.TemporaryDirectory(prefix="benchmark-rows-") as folder:
        job = _prepare_job(options, Path(folder), rows_per_limit)
        reports = runner.run_rounds(contestants, job, options.rounds, options.threads, keep)
    summaries = {label: runner.summarize(measured) for label, measured in reports.items()}
    print(runner.render_table(summaries))
    for label in list(summaries)[1:]:
        bar = f" (bar {BARS[label]}x)" if label in BARS else ""
        print(runner.render_ratio(f"packed against {label}{bar}", summaries["packed"], summaries[label]))


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="local folder of the model")
    parser.add_argument("--steps", type=int, default=8, help="optimiser steps, warm-up included")
    parser.add_argument("--warmup-steps", type=int, default=2, help="first steps that are not measured")
    parser.add_argument("--rounds", type=int, default=3, help="runs of every contestant")
    parser.add_argument("--cutoff-len", type=int, default=2048, help="length of a packed row")
    parser.add_argument("--mean-tokens", type=int, default=320, help="average length of a row")
    parser.add_argument("--seed", type=int, default=0, help="of the rows made")
    parser.add_argument("--threads", type=int, help="OMP_NUM_THREADS of the contestants; default: all cores")
    parser.add_argument("--output", type=Path, help="JSON file for everything that was measured")
    return parser.parse_args()


def _prepare_job(options: argparse.Namespace, folder: Path, rows_per_limit: int) -> Job:
    # Twice what the steps need: packing fills rows fuller when it has a choice.
    chosen = rows.make_rows_of_mean(
        2 * options.steps * (rows_per_limit + 1), options.mean_tokens, options.cutoff_len, options.seed
    )
    file = folder / "rows.json"
    file.write_text(json.dumps(chosen), encoding="utf-8")
    return Job(
        model=str(link_model_as_fp32(options.model, folder / "model")),
        rows=str(file),
        output="",
        steps=options.steps,
        warmup_steps=options.warmup_steps,
        batch=1,
        cutoff_len=options.cutoff_len,
        checkpointing="auto",
    )


if __name__ == "__main__":
    main()
