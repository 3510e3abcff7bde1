"""What the benchmarks that train one job in several ways have in common: options, contestants, the job, the report."""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import machine, runner
from benchmarks.contestants.job import Job
from benchmarks.models import link_model_as_fp32
from benchmarks.runner import Contestant, Measurement

PEERS = ("trl", "llamafactory")

_PEERS_DEFAULT = "on"
"""Both peers turn gradient checkpointing on by themselves, so their `auto` is their `on` and runs once for both."""

Summaries = dict[str, dict[str, float]]
"""The medians of what was measured, by contestant."""


def build_parser(description: str | None, *, steps: int, warmup_steps: int, cutoff_len: int) -> argparse.ArgumentParser:
    """Return a parser of the options that every one of them has, with its own defaults."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="local folder of the model")
    parser.add_argument("--steps", type=int, default=steps, help="optimiser steps, warm-up included")
    parser.add_argument("--warmup-steps", type=int, default=warmup_steps, help="first steps that are not measured")
    parser.add_argument("--rounds", type=int, default=3, help="runs of every contestant")
    parser.add_argument("--cutoff-len", type=int, default=cutoff_len, help="most tokens of a row")
    parser.add_argument("--seed", type=int, default=0, help="of the choice and order of rows")
    parser.add_argument("--threads", type=int, help="OMP_NUM_THREADS of the contestants; default: all cores")
    parser.add_argument("--output", type=Path, help="JSON file, written after every run, for everything measured")
    return parser


def add_peer_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a comparison with other tools."""
    parser.add_argument("--batch", type=int, default=4, help="rows per step")
    parser.add_argument("--llamafactory-python", help="interpreter of the environment with LLaMA-Factory")
    parser.add_argument(
        "--checkpointing",
        nargs="+",
        choices=("on", "off", "auto"),
        default=["on", "auto"],
        help="gradient checkpointing: on or off for all, or each tool's own default (auto); several may be given",
    )
    parser.add_argument("--only", nargs="+", choices=("tunesmith", *PEERS), help="leave the others out")


def list_contestants(
    options: argparse.Namespace, *, prefix: str = "", layouts: Mapping[str, str] | None = None
) -> list[Contestant]:
    """Return every tool that takes part, with every setting it differs in.

    Args:
        options: Of the command line.
        prefix: Of the names of the contestants' scripts.
        layouts: What ours is run with, in the words of its script, and what to call that; by default what a user gets
            who sets nothing.
    """
    tools = [("tunesmith", sys.executable, layout) for layout in (layouts or {"auto": ""})]
    tools += [("trl", sys.executable, "auto")] if find_spec("trl") else []
    tools += [("llamafactory", options.llamafactory_python, "auto")] if options.llamafactory_python else []
    found: dict[str, Contestant] = {}
    for setting in options.checkpointing:
        for tool, python, layout in tools:
            if options.only and tool not in options.only:
                continue
            name = label(tool, setting, (layouts or {}).get(layout, ""))
            found.setdefault(name, Contestant(name, prefix + tool, python, checkpointing=setting, layout=layout))
    return list(found.values())


def label(tool: str, setting: str, layout: str = "") -> str:
    """Return the name of a tool with a setting of gradient checkpointing."""
    if tool in PEERS and setting == "auto":
        setting = _PEERS_DEFAULT
    return f"{tool}{f', {layout}' if layout else ''}, checkpointing {setting}"


def list_duels(
    options: argparse.Namespace, summaries: Summaries, layout: str = ""
) -> Iterator[tuple[str, Measurement, Measurement]]:
    """Yield ours against each peer under each setting that both ran with: what is compared, ours, theirs."""
    for setting in options.checkpointing:
        meaning = "each tool's own default" if setting == "auto" else f"checkpointing {setting} for all"
        for peer in PEERS:
            ours, theirs = summaries.get(label("tunesmith", setting, layout)), summaries.get(label(peer, setting))
            if ours is not None and theirs is not None:
                yield f"against {peer}, {meaning}", ours, theirs


def write_job(options: argparse.Namespace, folder: Path, chosen: Sequence[Any], *, batch: int) -> Job:
    """Put the rows and the model where contestants find them, and return what they are to do."""
    file = folder / "rows.json"
    file.write_text(json.dumps(chosen, ensure_ascii=False), encoding="utf-8")
    return Job(
        model=str(link_model_as_fp32(options.model, folder / "model")),
        rows=str(file),
        output="",
        steps=options.steps,
        warmup_steps=options.warmup_steps,
        batch=batch,
        cutoff_len=options.cutoff_len,
        checkpointing="auto",
    )


@dataclass(frozen=True)
class Results:
    """What a comparison measured."""

    reports: runner.Reports
    summaries: Summaries


def run_comparison(
    options: argparse.Namespace,
    contestants: Sequence[Contestant],
    prepare: Callable[[Path], Job],
    *,
    derive: Callable[[Mapping[str, object]], dict[str, float]] | None = None,
    columns: Sequence[tuple[str, str, str]] = runner.TOKEN_COLUMNS,
) -> Results:
    """Run all contestants in alternating rounds, print the machine and the table, and keep what was measured.

    Args:
        options: Of the command line.
        contestants: Who takes part.
        prepare: Makes the job in a folder.
        derive: Makes the figures of a report; by default those of benchmarks that count tokens.
        columns: Of the table.
    """
    described = machine.describe_machine()
    print(machine.render_machine(described))

    def summarize(reports: runner.Reports) -> Summaries:
        return {name: runner.summarize(measured, derive) for name, measured in reports.items()}

    def keep(reports: runner.Reports) -> None:
        if options.output:
            runner.save_results(options.output, described, asdict(job), reports, summarize(reports))

    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        job = prepare(Path(folder))
        reports = runner.run_rounds(contestants, job, options.rounds, options.threads, keep)
    summaries = summarize(reports)
    print(runner.render_table(summaries, columns))
    return Results(reports, summaries)
