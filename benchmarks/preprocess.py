"""Rows to token ids and labels: here, in TRL, in LLaMA-Factory, and by the tokenizers library alone.

Run `python -m benchmarks.preprocess --rows 100000 --tokenizer DIR`. All tools get the same rows and print them with the
same ChatML template. Each is run once per round in a process of its own; rounds alternate and medians are compared.
What is timed goes from rows in a file to rows that a trainer can use, with nothing cached; for the library alone it is
only `encode_batch_fast` on the finished text. Tools prepare rows in one process, with the tokenizer's own threads off
(`--threads` leaves them on), so that tokens per CPU second compare the work and not the use of cores.

Without `--data` the rows are made on the spot, with the length profile of a thousand alpaca rows (answers of 107 tokens
in the median, 258 in the third quartile, 595 at most) and as many different words as real text (`benchmarks.prose`).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks import machine, prose, rows
from benchmarks.preprocess_contestants.stopwatch import PreprocessJob

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = "chatml"
TARGETS = {"LLaMA-Factory": 1.7, "tokenizers alone": 0.8}
"""What the tokens per CPU second are meant to be, as multiples of the others'."""

Report = Mapping[str, float]


@dataclass(frozen=True)
class Contestant:
    """One tool and where it is installed."""

    label: str
    script: str
    python: str


def main() -> None:
    """Run the comparison and print it."""
    options = _parse_options()
    described = machine.describe_machine()
    print(machine.render_machine(described))
    with tempfile.TemporaryDirectory(prefix="benchmark-preprocess-") as folder:
        job = _prepare_job(options, Path(folder))
        reports = _run_rounds(_list_contestants(options), job, options)
    print(_render(reports))
    if options.output:
        settings = {name: str(value) for name, value in vars(options).items()}
        content = {"machine": described, "settings": settings, "rounds": reports}
        options.output.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--data", type=Path, help="JSON file of alpaca rows, repeated as needed; default: made rows")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of a tokenizer that knows <|im_end|>")
    parser.add_argument("--cutoff-len", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3, help="runs of every contestant")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", action="store_true", help="leave the tokenizer's own threads on")
    parser.add_argument("--llamafactory-python", help="interpreter of the environment with LLaMA-Factory")
    parser.add_argument("--only", nargs="+", choices=("ours", "bare", "trl", "llamafactory"), help="leave out others")
    parser.add_argument("--output", type=Path, help="JSON file for everything measured")
    return parser.parse_args()


def _prepare_job(options: argparse.Namespace, folder: Path) -> PreprocessJob:
    made = (
        rows.load_rows(options.data, options.rows, options.seed)
        if options.data
        else prose.make_prose_rows(options.rows, options.seed)
    )
    (folder / "rows.json").write_text(json.dumps(made, ensure_ascii=False), encoding="utf-8")
    with (folder / "conversations.jsonl").open("w", encoding="utf-8") as file:
        for row in made:
            question = f"{row['instruction']}\n{row['input']}" if row["input"] else row["instruction"]
            prompt = [{"role": "user", "content": question}]
            completion = [{"role": "assistant", "content": row["output"]}]
            file.write(json.dumps({"prompt": prompt, "completion": completion}, ensure_ascii=False) + "\n")
    return PreprocessJob(
        tokenizer=str(_with_template(options.tokenizer, folder / "tokenizer")),
        rows=str(folder / "rows.json"),
        conversations=str(folder / "conversations.jsonl"),
        folder="",
        cutoff_len=options.cutoff_len,
        template=TEMPLATE,
    )


def _with_template(source: Path, folder: Path) -> Path:
    """Save the tokenizer with the template that all tools print, beside a configuration that makes it a model."""
    from transformers import AutoTokenizer, LlamaConfig

    from tunesmith.config import DataConfig
    from tunesmith.data.chat import resolve_template

    tokenizer = AutoTokenizer.from_pretrained(source)
    resolve_template(DataConfig(template=TEMPLATE), tokenizer).apply_to_tokenizer(tokenizer)
    tokenizer.save_pretrained(folder)
    LlamaConfig(vocab_size=len(tokenizer)).save_pretrained(folder)  # LLaMA-Factory wants a model folder
    return folder


def _list_contestants(options: argparse.Namespace) -> list[Contestant]:
    known = [Contestant("tunesmith", "ours", sys.executable), Contestant("tokenizers alone", "bare", sys.executable)]
    if find_spec("trl") is not None:
        known.append(Contestant("TRL", "trl", sys.executable))
    if options.llamafactory_python:
        known.append(Contestant("LLaMA-Factory", "llamafactory", options.llamafactory_python))
    return [contestant for contestant in known if not options.only or contestant.script in options.only]


def _run_rounds(
    contestants: Sequence[Contestant], job: PreprocessJob, options: argparse.Namespace
) -> dict[str, list[Report]]:
    reports: dict[str, list[Report]] = {contestant.label: [] for contestant in contestants}
    for number in range(options.rounds):
        for contestant in contestants:
            print(f"round {number + 1}/{options.rounds}: {contestant.label} ...", file=sys.stderr, flush=True)
            reports[contestant.label].append(_run(contestant, job, threads=options.threads))
    return reports


def _run(contestant: Contestant, job: PreprocessJob, *, threads: bool) -> Report:
    with tempfile.TemporaryDirectory(prefix="benchmark-preprocess-") as folder:
        job_file = Path(folder) / "job.json"
        PreprocessJob(**{**vars(job), "folder": folder}).save(job_file)
        finished = subprocess.run(
            [contestant.python, "-m", f"benchmarks.preprocess_contestants.{contestant.script}", str(job_file)],
            cwd=ROOT,
            env=_environment(Path(folder), threads=threads),
            capture_output=True,
            text=True,
            check=False,
        )
    if finished.returncode != 0:
        raise SystemExit(f"{contestant.label} failed with exit code {finished.returncode}:\n{finished.stderr[-6000:]}")
    report: Report = json.loads(finished.stdout.strip().splitlines()[-1])
    return report


def _environment(folder: Path, *, threads: bool) -> dict[str, str]:
    return os.environ | {
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "TOKENIZERS_PARALLELISM": "true" if threads else "false",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(folder / "datasets"),
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "",
    }


def _render(reports: Mapping[str, Sequence[Report]]) -> str:
    rates = {
        label: {
            "tokens per CPU second": statistics.median(report["tokens"] / report["cpu_seconds"] for report in measured),
            "rows per CPU second": statistics.median(report["rows"] / report["cpu_seconds"] for report in measured),
            "tokens per second": statistics.median(report["tokens"] / report["wall_seconds"] for report in measured),
            "peak GiB": statistics.median(report["peak_memory_bytes"] / 2**30 for report in measured),
        }
        for label, measured in reports.items()
    }
    columns = list(next(iter(rates.values())))
    lines = [f"{'':<18}" + "".join(f"{column:>24}" for column in columns) + f"{'tokens':>14}{'trained':>14}"]
    for label, figures in rates.items():
        first = reports[label][0]
        trained = "-" if first["trained_tokens"] is None else f"{first['trained_tokens']:,}"
        cells = "".join(f"{figures[column]:>24,.2f}" for column in columns)
        lines.append(f"{label:<18}{cells}{first['tokens']:>14,}{trained:>14}")
    ours = rates.get("tunesmith")
    for label, figures in rates.items() if ours else ():
        if label != "tunesmith":
            ratio = ours["tokens per CPU second"] / figures["tokens per CPU second"]
            target = f" (target {TARGETS[label]:g}x)" if label in TARGETS else ""
            lines.append(f"tunesmith against {label}: {ratio:.2f}x tokens per CPU second{target}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
