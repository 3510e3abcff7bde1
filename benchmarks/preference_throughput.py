"""The same DPO job with LoRA here, in TRL and in LLaMA-Factory: pairs per second and memory.

Run `python -m benchmarks.preference_throughput --model DIR --data dpo_en_demo.json`; README.md beside this file defines
every figure.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from benchmarks import machine, rows, runner
from benchmarks.contestants.job import Job
from benchmarks.models import link_model_as_fp32
from benchmarks.runner import Contestant, Measurement

PEERS_DEFAULT = "on"
"""Both peers turn gradient checkpointing on by themselves, so their `auto` is their `on` and runs once for both."""

_SHARING = {"shared": "prompts shared", "plain": "prompts twice"}
_TOKENS_PER_MESSAGE = 12
"""Generous for what a chat template puts around a message; its system message included in the first one's."""

_COLUMNS = (
    ("pairs/s", "pairs_per_second", "{:.3f}"),
    ("pairs/CPU s", "pairs_per_cpu_second", "{:.3f}"),
    ("peak GiB", "peak_memory_gib", "{:.2f}"),
    ("positions/pair", "positions_per_pair", "{:.0f}"),
    ("first step s", "first_step_seconds", "{:.1f}"),
)


def main() -> None:
    """Run the comparison and print it."""
    options = _parse_options()
    settings = tuple(options.checkpointing)
    contestants = _list_contestants(settings, options.llamafactory_python, options.only)
    described = machine.describe_machine()
    print(machine.render_machine(described))

    def keep(reports: runner.Reports) -> None:
        if options.output:
            medians = {label: _summarize(measured) for label, measured in reports.items()}
            runner.save_results(options.output, described, asdict(job), reports, medians)

    with tempfile.TemporaryDirectory(prefix="benchmark-pairs-") as folder:
        job = _prepare_job(options, Path(folder))
        reports = runner.run_rounds(contestants, job, options.rounds, options.threads, keep)
    summaries = {label: _summarize(measured) for label, measured in reports.items()}
    print(runner.render_table(summaries, _COLUMNS))
    for setting in settings:
        _print_ratios(setting, summaries)
    for problem in runner.check_same_work(reports, names=("trained_tokens", "trained_parameters")):
        print(f"NOT COMPARABLE: {problem}")


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="local folder of the model")
    parser.add_argument("--data", type=Path, required=True, help="JSON file of sharegpt pairs (dpo_en_demo.json)")
    parser.add_argument("--steps", type=int, default=6, help="optimiser steps, warm-up included")
    parser.add_argument("--warmup-steps", type=int, default=1, help="first steps that are not measured")
    parser.add_argument("--rounds", type=int, default=3, help="runs of every contestant")
    parser.add_argument("--batch", type=int, default=4, help="pairs per step")
    parser.add_argument("--cutoff-len", type=int, default=1024, help="longer pairs are left out")
    parser.add_argument("--seed", type=int, default=0, help="of the choice and order of pairs")
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
    parser.add_argument("--output", type=Path, help="JSON file, written after every run, for everything measured")
    return parser.parse_args()


def _list_contestants(
    settings: Sequence[str], llamafactory_python: str | None, only: Sequence[str] | None
) -> list[Contestant]:
    """Return every tool with every setting it differs in; ours with prompts shared and not."""
    found: dict[str, Contestant] = {}
    for setting in settings:
        tools = [("tunesmith", sys.executable, layout) for layout in _SHARING]
        tools += [("trl", sys.executable, "auto")] if find_spec("trl") else []
        tools += [("llamafactory", llamafactory_python, "auto")] if llamafactory_python else []
        for tool, python, layout in tools:
            if only and tool not in only:
                continue
            label = _label(tool, setting, layout)
            found.setdefault(label, Contestant(label, f"pairs_{tool}", python, checkpointing=setting, layout=layout))
    return list(found.values())


def _label(tool: str, setting: str, layout: str = "auto") -> str:
    if tool != "tunesmith" and setting == "auto":
        setting = PEERS_DEFAULT
    sharing = f", {_SHARING[layout]}" if layout in _SHARING else ""
    return f"{tool}{sharing}, checkpointing {setting}"


def _prepare_job(options: argparse.Namespace, folder: Path) -> Job:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.model)

    def fits(texts: list[str]) -> bool:
        used = sum(len(tokenizer(text)["input_ids"]) + _TOKENS_PER_MESSAGE for text in texts)
        return used + _TOKENS_PER_MESSAGE <= options.cutoff_len

    chosen = rows.load_pairs(options.data, options.steps * options.batch, options.seed, fits=fits)
    file = folder / "rows.json"
    file.write_text(json.dumps(chosen, ensure_ascii=False), encoding="utf-8")
    return Job(
        model=str(link_model_as_fp32(options.model, folder / "model")),
        rows=str(file),
        output="",
        steps=options.steps,
        warmup_steps=options.warmup_steps,
        batch=options.batch,
        cutoff_len=options.cutoff_len,
        checkpointing="auto",
    )


def _summarize(reports: Sequence[Measurement]) -> dict[str, float]:
    return runner.summarize(reports, _derive_figures)


def _derive_figures(report: Measurement) -> dict[str, float]:
    numbers = {name: float(value) for name, value in report.items() if isinstance(value, int | float)}
    return {
        "pairs_per_second": numbers["pairs"] / numbers["wall_seconds"],
        "pairs_per_cpu_second": numbers["pairs"] / numbers["cpu_seconds"],
        "peak_memory_gib": numbers["peak_memory_bytes"] / 2**30,
        "positions_per_pair": numbers["padded_tokens"] / numbers["pairs"],
        "first_step_seconds": numbers["first_step_seconds"],
    }


def _print_ratios(setting: str, summaries: dict[str, dict[str, float]]) -> None:
    meaning = "each tool's own default" if setting == "auto" else f"checkpointing {setting} for all"
    for layout, sharing in _SHARING.items():
        ours = summaries.get(_label("tunesmith", setting, layout))
        for peer in ("trl", "llamafactory"):
            theirs = summaries.get(_label(peer, setting))
            if ours is None or theirs is None:
                continue
            print(
                f"{sharing}, against {peer}, {meaning}: "
                f"{ours['pairs_per_second'] / theirs['pairs_per_second']:.2f}x pairs/s, "
                f"{ours['pairs_per_cpu_second'] / theirs['pairs_per_cpu_second']:.2f}x per CPU second, "
                f"{ours['peak_memory_gib'] / theirs['peak_memory_gib']:.2f}x peak memory"
            )


if __name__ == "__main__":
    main()
