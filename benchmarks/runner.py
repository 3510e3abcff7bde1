"""Runs contestants as child processes, in alternating rounds, and compares the medians of what they report."""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.contestants.job import Job
from benchmarks.machine import count_cores

ROOT = Path(__file__).resolve().parents[1]

Measurement = Mapping[str, float]

_TOLERANCE = 0.02
"""Share by which two tools may differ in what they say they have done, such as in tokens of templates."""


@dataclass(frozen=True)
class Contestant:
    """One tool with one setting."""

    label: str
    script: str
    """Module name in `benchmarks.contestants`."""
    python: str
    """Interpreter of the environment in which the tool is installed."""
    checkpointing: str = "auto"
    layout: str = "auto"
    """See the tables of layouts in the contestants' scripts."""
    batch: int | None = None
    """Rows per step, where it differs from the job's."""


Reports = dict[str, list[dict[str, object]]]


def run_rounds(
    contestants: Sequence[Contestant],
    job: Job,
    rounds: int,
    threads: int | None = None,
    keep: Callable[[Reports], None] | None = None,
) -> Reports:
    """Run every contestant once per round and return all reports by label.

    Rounds alternate instead of running each tool's repetitions in a block, so that a machine that gets slower or busier
    meanwhile does not decide the comparison.

    Args:
        contestants: Who takes part.
        job: What all of them do.
        rounds: How often.
        threads: Of each contestant; all cores by default.
        keep: Called with everything measured so far after every run, so that a benchmark that is stopped loses no more
            than the run it is in.
    """
    # Told to stop, it stops the contestant too: a training that nobody waits for would disturb what is measured next.
    signal.signal(signal.SIGTERM, _stop)
    reports: dict[str, list[dict[str, object]]] = {contestant.label: [] for contestant in contestants}
    for number in range(rounds):
        for contestant in contestants:
            print(f"round {number + 1}/{rounds}: {contestant.label} ...", file=sys.stderr, flush=True)
            report = run_contestant(contestant, job, threads or count_cores())
            reports[contestant.label].append(report)
            if keep is not None:
                keep({label: measured for label, measured in reports.items() if measured})
    return reports


def run_contestant(contestant: Contestant, job: Job, threads: int) -> dict[str, object]:
    """Run one contestant once and return its report. Its own output is shown only when it fails."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        job_file = Path(folder) / "job.json"
        replace(
            job,
            output=str(Path(folder) / "output"),
            checkpointing=contestant.checkpointing,
            layout=contestant.layout,
            batch=contestant.batch or job.batch,
        ).save(job_file)
        command = [contestant.python, "-m", f"benchmarks.contestants.{contestant.script}", str(job_file)]
        exit_code, output, errors = _run_child(command, threads)
    if exit_code != 0:
        raise SystemExit(f"{contestant.label} failed with exit code {exit_code}:\n{errors[-6000:]}")
    report: dict[str, object] = json.loads(output.strip().splitlines()[-1])
    return report


def _run_child(command: Sequence[str], threads: int) -> tuple[int, str, str]:
    """Run a command and return its exit code, output and errors; it is killed where this process is told to stop.

    Where this one is killed outright, the contestant sees to it itself, see `Job.from_command_line`.
    """
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=_environment(threads),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            output, errors = child.communicate()
        finally:
            child.kill()
    return child.returncode, output, errors


def _stop(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def summarize(
    reports: Sequence[Mapping[str, object]], derive: Callable[[Mapping[str, object]], dict[str, float]] | None = None
) -> dict[str, float]:
    """Return the medians over rounds of the figures that are compared.

    Args:
        reports: Of one contestant.
        derive: Makes the figures of a report; by default those of benchmarks that count tokens.
    """
    figures = [(derive or _derive_figures)(report) for report in reports]
    return {name: statistics.median(figure[name] for figure in figures) for name in figures[0]}


TOKEN_COLUMNS = (
    ("real tok/s", "real_tokens_per_second", "{:.1f}"),
    ("trained tok/s", "trained_tokens_per_second", "{:.1f}"),
    ("real tok/CPU s", "real_tokens_per_cpu_second", "{:.1f}"),
    ("real share", "real_share", "{:.0%}"),
    ("peak GiB", "peak_memory_gib", "{:.2f}"),
    ("first step s", "first_step_seconds", "{:.1f}"),
)
"""Title, figure and format of each column."""


def render_table(summaries: Mapping[str, Measurement], columns: Sequence[tuple[str, str, str]] = TOKEN_COLUMNS) -> str:
    """Return one line per contestant."""
    width = max(len(label) for label in summaries)
    lines = [" " * width + "".join(f"{title:>16}" for title, _, _ in columns)]
    for label, summary in summaries.items():
        cells = "".join(f"{shape.format(summary[name]):>16}" for _, name, shape in columns)
        lines.append(f"{label:<{width}}{cells}")
    return "\n".join(lines)


def render_ratio(title: str, ours: Measurement, theirs: Measurement) -> str:
    """Return how many times more real tokens, and what share of the memory, ours takes."""
    return (
        f"{title}: {ours['real_tokens_per_second'] / theirs['real_tokens_per_second']:.2f}x real tokens/s, "
        f"{ours['real_tokens_per_cpu_second'] / theirs['real_tokens_per_cpu_second']:.2f}x per CPU second, "
        f"{ours['peak_memory_gib'] / theirs['peak_memory_gib']:.2f}x peak memory, "
        f"{ours['first_step_seconds'] / theirs['first_step_seconds']:.2f}x time to the first step"
    )


def check_same_work(
    reports: Mapping[str, Sequence[Mapping[str, object]]],
    names: Sequence[str] = ("tokens", "trained_tokens", "trained_parameters"),
) -> list[str]:
    """Return what makes the runs incomparable: other numbers of tokens, trained parameters or kinds of numbers."""
    first_label, (first, *_) = next(iter(reports.items()))
    problems = []
    for label, (report, *_) in reports.items():
        for name in names:
            expected, found = first[name], report[name]
            assert isinstance(expected, int)
            assert isinstance(found, int)
            if abs(found - expected) > _TOLERANCE * expected:
                problems.append(f"{label} has {found} {name}, {first_label} {expected}")
        if report["parameter_types"] != first["parameter_types"]:
            problems.append(f"{label} computes in {report['parameter_types']}, not {first['parameter_types']}")
    return problems


def save_results(path: Path, machine: object, settings: object, reports: object, summaries: object) -> None:
    """Write everything that was measured as JSON."""
    content = {"machine": machine, "settings": settings, "medians": summaries, "rounds": reports}
    path.write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")


def _derive_figures(report: Mapping[str, object]) -> dict[str, float]:
    numbers = {name: float(value) for name, value in report.items() if isinstance(value, int | float)}
    return {
        "real_tokens_per_second": numbers["tokens"] / numbers["wall_seconds"],
        "trained_tokens_per_second": numbers["trained_tokens"] / numbers["wall_seconds"],
        "real_tokens_per_cpu_second": numbers["tokens"] / numbers["cpu_seconds"],
        "real_share": numbers["tokens"] / numbers["padded_tokens"],
        "peak_memory_gib": numbers["peak_memory_bytes"] / 2**30,
        "first_step_seconds": numbers["first_step_seconds"],
        "seconds_per_step": numbers["wall_seconds"] / numbers["steps"],
    }


def _environment(threads: int) -> dict[str, str]:
    # Threads that spin while they wait (the default of GNU OpenMP) make every figure depend on who else is running.
    return os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "",
    }
