"""Does a loader that tunes itself keep up? Against the best of all settings, over slow sources and fast models.

Run `python -m benchmarks.io_feed`. README.md beside this file says what it measures.
"""

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks import machine
from tunesmith.data.batches import Example
from tunesmith.data.collators import build_collator
from tunesmith.data.loading.samplers import RandomSampler
from tunesmith.runtime.memory import cpu_quota
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.io.settings import LoaderPolicy, LoaderSettings
from tunesmith.training.loaders import ProcessBatches, build_loader

BATCH = 8
_FILLING_SECONDS = 1.0
"""For which a fixed setting runs before it is measured: workers start, and the first batches are made ahead."""

_LAUNCH_SHARE = 0.5
"""Share of a step in which the process is busy with giving the device its work, and fetches nothing."""

_BURSTS = (0.4, 0.4, 0.4, 2.8)
"""Factors of the uneven source: one row in four takes seven times as long as the others."""


@dataclass(frozen=True)
class Case:
    """A source and a model."""

    name: str
    row_seconds: float
    step_seconds: float
    computes: bool
    """Whether making a row keeps a processor busy (tokenising, decoding) or waits (storage, network)."""

    is_uneven: bool = False

    @property
    def is_possible(self) -> bool:
        """Whether the processors allow a loader to keep up: the model here sleeps, as one on a GPU does."""
        return not self.computes or BATCH * self.row_seconds / self.step_seconds <= 0.9 * cpu_quota()


CASES = (
    Case("tokenised, fast model", 0.00002, 0.02, computes=True),
    Case("tokenising", 0.001, 0.05, computes=True),
    Case("tokenising, fast model", 0.001, 0.01, computes=True),
    Case("decoding images", 0.008, 0.1, computes=True),
    Case("decoding images, fast model", 0.008, 0.05, computes=True),
    Case("local storage", 0.002, 0.05, computes=False),
    Case("network storage", 0.02, 0.1, computes=False),
    Case("network storage, fast model", 0.02, 0.04, computes=False),
    Case("uneven network", 0.02, 0.1, computes=False, is_uneven=True),
    Case("uneven decoding", 0.006, 0.1, computes=True, is_uneven=True),
)


class Source:
    """Rows that take a while to make."""

    def __init__(self, case: Case, num_rows: int = 30_000) -> None:
        self.case = case
        self.num_rows = num_rows
        self._matrix = torch.ones(64, 64)

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, row: int) -> Example:
        factor = _BURSTS[row % len(_BURSTS)] if self.case.is_uneven else 1.0
        seconds = self.case.row_seconds * factor
        if self.case.computes:
            end = time.thread_time() + seconds
            while time.thread_time() < end:
                torch.mm(self._matrix, self._matrix)
        else:
            time.sleep(seconds)
        ids = np.arange(320, dtype=np.int32)
        return Example(input_ids=ids, trained_spans=np.array([100, 320], dtype=np.int32), row_id=row)


@dataclass(frozen=True)
class Result:
    """What a policy came to."""

    rate: float
    """Batches a second, over the part that is measured."""

    wait_share: float
    workers: int
    prefetch: int


class Device:
    """What works for some time and leaves the processor alone, as a GPU does."""

    def __init__(self, seconds: float) -> None:
        self._end = time.perf_counter() + seconds

    def is_done(self) -> bool:
        """Return whether it is."""
        return time.perf_counter() >= self._end

    def idle_seconds(self) -> float:
        """Return for how long it has had nothing to do."""
        return max(0.0, time.perf_counter() - self._end)

    def wait(self) -> None:
        """Return once it is done."""
        time.sleep(max(0.0, self._end - time.perf_counter()))


def measure(case: Case, policy: LoaderPolicy, seconds: float, settle_seconds: float, *, looks_ahead: bool) -> Result:
    """Run something that takes the time of a model, and measure after some time to settle.

    Args:
        case: What is fed with what.
        policy: How.
        seconds: To measure.
        settle_seconds: To run before.
        looks_ahead: Fetch the next batch while the device works, as the trainer does where there is one, once it has
            all its work. What lasts longer than that is waited for.
    """
    collator = build_collator("flat", pad_token_id=0)
    source = Source(case)
    batches = ProcessBatches(RandomSampler(len(source)), BATCH, Ranks())
    loader = build_loader(source, collator, batches, policy=policy)
    iterator = _endless(loader)
    begin, count, waited, settled_at = time.perf_counter(), 0, 0.0, None
    while True:
        started = time.perf_counter()
        if settled_at is None and started - begin > settle_seconds:
            settled_at, count, waited = started, 0, 0.0
        if settled_at is not None and started - settled_at > seconds:
            break
        next(iterator)
        waited += time.perf_counter() - started
        device = Device(case.step_seconds)
        if looks_ahead:
            time.sleep(_LAUNCH_SHARE * case.step_seconds)
            loader.feed.look_ahead(1, device)
            waited += device.idle_seconds()
        device.wait()
        count += 1
    measured = time.perf_counter() - settled_at
    settings = loader.feed.settings
    loader.feed.close()
    return Result(count / measured, waited / measured, settings.num_workers, settings.prefetch_factor)


def _endless(loader: Any) -> Iterator[Any]:
    for epoch in itertools.count():
        loader.set_epoch(epoch)
        yield from loader


def main() -> None:
    """Measure every case and say whether the bars are met."""
    options = _parse_options()
    torch.set_num_threads(1)
    described = machine.describe_machine()
    cases = [case for case in CASES if options.only is None or options.only in case.name]
    print(machine.render_machine(described))
    print(f"about {_expected_seconds(options) * len(cases) / 60:.0f} minutes", flush=True)
    kept = []
    for case in cases:
        best, by_hand, searched = search(case, options)
        tuned = _middle(case, LoaderPolicy(tunes_workers=True, tunes_prefetch=True), options, settle=options.settle)
        waits = tuned.wait_share <= 0.03 or not case.is_possible
        is_close = tuned.rate >= 0.9 * by_hand.rate
        print(
            f"{case.name:<28} auto {tuned.rate:6.2f} batches/s, waiting {tuned.wait_share:6.1%}, "
            f"{tuned.workers} workers x {tuned.prefetch}; best by hand {by_hand.rate:6.2f}, waiting "
            f"{by_hand.wait_share:6.1%}, with {best.render()}: "
            f"{tuned.rate / by_hand.rate:.2f}x {'ok' if waits and is_close else 'MISSED'}"
            f"{'' if case.is_possible else ' (more than the processors can make)'}",
            flush=True,
        )
        kept.append(
            {
                "case": asdict(case),
                "auto": asdict(tuned),
                "best": asdict(by_hand),
                "settings": asdict(best),
                "searched": [asdict(result) for result in searched],
            }
        )
    if options.output:
        options.output.write_text(json.dumps({"machine": described, "cases": kept}, indent=2), encoding="utf-8")


def search(case: Case, options: argparse.Namespace) -> tuple[LoaderSettings, Result, list[Result]]:
    """Return the best setting of the grid and what it comes to, and a short look at every one.

    The look is short, and its winner partly one by luck. So the finalists are measured again, as long as the loader
    that tunes itself is.
    """
    looked = {
        settings: _measure_with(options, case, LoaderPolicy(start=settings), options.look_seconds, _FILLING_SECONDS)
        for settings in _grid(options)
    }
    ranked = sorted(looked, key=lambda settings: -looked[settings].rate)
    finalists = {
        settings: _middle(case, LoaderPolicy(start=settings), options, settle=_FILLING_SECONDS)
        for settings in ranked[: options.finalists]
    }
    best, result = max(finalists.items(), key=lambda item: item[1].rate)
    return best, result, list(looked.values())


def _grid(options: argparse.Namespace) -> list[LoaderSettings]:
    with_workers = itertools.product(options.workers, options.prefetch)
    return [LoaderSettings(0, 2), *(LoaderSettings(number, ahead) for number, ahead in with_workers)]


def _expected_seconds(options: argparse.Namespace) -> float:
    looks = len(_grid(options)) * (options.look_seconds + _FILLING_SECONDS)
    finals = options.finalists * (options.seconds + _FILLING_SECONDS)
    return float(looks + options.rounds * (finals + options.seconds + options.settle))


def _middle(case: Case, policy: LoaderPolicy, options: argparse.Namespace, settle: float) -> Result:
    results = [_measure_with(options, case, policy, options.seconds, settle) for _ in range(options.rounds)]
    rate = median(result.rate for result in results)
    return min(results, key=lambda result: abs(result.rate - rate))


def _measure_with(
    options: argparse.Namespace, case: Case, policy: LoaderPolicy, seconds: float, settle: float
) -> Result:
    return measure(case, policy, seconds, settle, looks_ahead=not options.synchronous)


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="measured, of the loader that tunes itself")
    parser.add_argument("--settle", type=float, default=15.0, help="what it gets before that to find its settings")
    parser.add_argument("--look-seconds", type=float, default=2.0, help="measured, of every setting of the grid")
    parser.add_argument("--finalists", type=int, default=2, help="best settings, measured again, as long as auto")
    parser.add_argument("--rounds", type=int, default=1, help="of auto and finalists, of which the median counts")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--prefetch", type=int, nargs="+", default=[2, 8])
    parser.add_argument(
        "--synchronous", action="store_true", help="fetch each batch when it is due, as a run on a CPU does"
    )
    parser.add_argument("--only", help="part of the name of a case")
    parser.add_argument("--output", type=Path, help="JSON file for everything that was measured")
    return parser.parse_args()


if __name__ == "__main__":
    main()
