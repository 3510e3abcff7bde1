"""The same LoRA fine-tuning job here, in TRL and in LLaMA-Factory: tokens per second, memory, time to the first step.

Run `python -m benchmarks.sft_throughput --model DIR`; README.md beside this file defines every figure.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from benchmarks import machine, rows, runner
from benchmarks.contestants.job import Job
from benchmarks.models import link_model_as_fp32
from benchmarks.runner import Contestant

PEERS_DEFAULT = "on"
"""Both peers turn gradient checkpointing on by themselves, so their `auto` is their `on` and runs once for both."""


def main() -> None:
    """Run the comparison and print it."""
    options = _parse_options()
    settings = tuple(options.checkpointing)
    contestants = _list_contestants(settings, options.llamafactory_python, options.only)
    described = machine.describe_machine()
    print(machine.render_machine(described))

    def keep(reports: runner.Reports) -> None:
        if options.output:
            medians = {label: runner.summarize(measured) for label, measured in reports.items()}
            runner.save_results(options.output, described, asdict(job), reports, medians)

    with tempfile.TemporaryDirectory(prefix="benchmark-rows-") as folder:
        job = _prepare_job(options, Path(folder))
        reports = runner.run_rounds(contestants, job, options.rounds, options.threads, keep)
    summaries = {label: runner.summarize(measured) for label, measured in reports.items()}
    print(runner.render_table(summaries))
    for setting in settings:
        _print_ratios(setting, summaries)
    for problem in runner.check_same_work(reports):
        print(f"NOT COMPARABLE: {problem}")


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="local folder of the model")
    parser.add_argument("--data", type=Path, help="JSON file of alpaca rows; default: rows made on the spot")
    parser.add_argument("--steps", type=int, default=10, help="optimiser steps, warm-up included")
    parser.add_argument("--warmup-steps", type=int, default=2, help="first steps that are not measured")
    parser.add_argument("--rounds", type=int, default=3, help="runs of every contestant")
    parser.add_argument("--batch", type=int, default=4, help="rows per step")
    parser.add_argument("--cutoff-len", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0, help="of the choice and order of rows")
    parser.add_argument("--threads", type=int, help="OMP_NUM_THREADS of the contestants; default: all cores")
    parser.add_argument("--llamafactory-python", help="interpreter of the environment with LLaMA-Factory")
    parser.add_argument(
        "--checkpointing",
        nargs="+",
        choices=("on", "off", "auto"),
        default=["on", "auto"],
        help="gradient checkpointing: on or off for all, or each tool's own default (auto); several may be given",
    )
    parser.add_argument("--only", nargs="+", choices=("tunesmith", "trl", "llamafactory"), help="leave the others out")
    parser.add_argument("--output", type=Path, help="JSON file for everything that was measured")
    return parser.parse_args()


def _list_contestants(
    settings: tuple[str, ...], llamafactory_python: str | None, only: list[str] | None
) -> list[Contestant]:
    """Return every tool with every setting it differs in."""
    tools = [("tunesmith", sys.executable)]
    if find_spec("trl"):
        tools.append(("trl", sys.executable))
    if llamafactory_python:
        tools.append(("llamafactory", llamafactory_python))
    if only:
        tools = [tool for tool in tools if tool[0] in only]
    found: dict[str, Contestant] = {}
    for setting in settings:
        for tool, python in tools:
            label = _label(tool, setting)
            found.setdefault(label, Contestant(label, tool, python, checkpointing=setting))
    return list(found.values())


def _label(tool: str, setting: str) -> str:
    if tool != "tunesmith" and setting == "auto":
        setting = PEERS_DEFAULT
    return f"{tool}, checkpointing {setting}"


def _prepare_job(options: argparse.Namespace, folder: Path) -> Job:
    count = options.steps * options.batch
    chosen = rows.load_rows(options.data, count, options.seed) if options.data else rows.make_rows(count, options.seed)
    model = link_model_as_fp32(options.model, folder / "model")
    file = folder / "rows.json"
    file.write_text(json.dumps(chosen, ensure_ascii=False), encoding="utf-8")
    return Job(
        model=str(model),
        rows=str(file),
        output="",
        steps=options.steps,
        warmup_steps=options.warmup_steps,
        batch=options.batch,
        cutoff_len=options.cutoff_len,
        checkpointing="auto",
    )


def _print_ratios(setting: str, summaries: dict[str, dict[str, float]]) -> None:
    ours = summaries.get(_label("tunesmith", setting))
    if ours is None:
        return
    meaning = "each tool's own default" if setting == "auto" else f"checkpointing {setting} for all"
    for peer in ("trl", "llamafactory"):
        theirs = summaries.get(_label(peer, setting))
        if theirs is not None:
            print(runner.render_ratio(f"against {peer}, {meaning}", ours, theirs))


if __name__ == "__main__":
    main()
