"""The same DPO job with LoRA here, in TRL and in LLaMA-Factory: pairs per second and memory.

Run `python -m benchmarks.preference_throughput --model DIR --data dpo_en_demo.json`; README.md beside this file defines
every figure.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

from benchmarks import comparison, rows, runner
from benchmarks.contestants.job import Job

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
    contestants = comparison.list_contestants(options, prefix="pairs_", layouts=_SHARING)
    results = comparison.run_comparison(
        options, contestants, lambda folder: _prepare_job(options, folder), derive=_derive_figures, columns=_COLUMNS
    )
    for sharing in _SHARING.values():
        for title, ours, theirs in comparison.list_duels(options, results.summaries, sharing):
            print(
                f"{sharing}, {title}: "
                f"{ours['pairs_per_second'] / theirs['pairs_per_second']:.2f}x pairs/s, "
                f"{ours['pairs_per_cpu_second'] / theirs['pairs_per_cpu_second']:.2f}x per CPU second, "
                f"{ours['peak_memory_gib'] / theirs['peak_memory_gib']:.2f}x peak memory"
            )
    for problem in runner.check_same_work(results.reports, names=("trained_tokens", "trained_parameters")):
        print(f"NOT COMPARABLE: {problem}")


def _parse_options() -> argparse.Namespace:
    parser = comparison.build_parser(__doc__, steps=6, warmup_steps=1, cutoff_len=1024)
    parser.add_argument("--data", type=Path, required=True, help="JSON file of sharegpt pairs (dpo_en_demo.json)")
    comparison.add_peer_options(parser)
    return parser.parse_args()


def _prepare_job(options: argparse.Namespace, folder: Path) -> Job:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.model)

    def fits(texts: list[str]) -> bool:
        used = sum(len(tokenizer(text)["input_ids"]) + _TOKENS_PER_MESSAGE for text in texts)
        return used + _TOKENS_PER_MESSAGE <= options.cutoff_len

    chosen = rows.load_pairs(options.data, options.steps * options.batch, options.seed, fits=fits)
    return comparison.write_job(options, folder, chosen, batch=options.batch)


def _derive_figures(report: Mapping[str, object]) -> dict[str, float]:
    numbers = {name: float(value) for name, value in report.items() if isinstance(value, int | float)}
    return {
        "pairs_per_second": numbers["pairs"] / numbers["wall_seconds"],
        "pairs_per_cpu_second": numbers["pairs"] / numbers["cpu_seconds"],
        "peak_memory_gib": numbers["peak_memory_bytes"] / 2**30,
        "positions_per_pair": numbers["padded_tokens"] / numbers["pairs"],
        "first_step_seconds": numbers["first_step_seconds"],
    }


if __name__ == "__main__":
    main()
