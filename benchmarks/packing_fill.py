"""How full packed rows are, for several mixes of lengths.

Run `python -m benchmarks.packing_fill`; README.md beside this file says what is measured.
"""

import argparse
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from tunesmith.data.packing import best_fit_decreasing

BAR = 0.995

Rng = np.random.Generator
Mix = Callable[[Rng, int], NDArray[np.int64]]


def _short(rng: Rng, count: int) -> NDArray[np.int64]:
    return rng.integers(80, 561, count)


def _chats(rng: Rng, count: int) -> NDArray[np.int64]:
    return np.clip(rng.lognormal(np.log(260), 0.7, count), 16, 2048).astype(np.int64)


def _chats_and_documents(rng: Rng, count: int) -> NDArray[np.int64]:
    return np.concatenate([_chats(rng, count - count // 5), rng.integers(500, 1800, count // 5)])


def _mostly_long(rng: Rng, count: int) -> NDArray[np.int64]:
    return np.concatenate([rng.integers(1000, 2049, count // 4), _short(rng, count - count // 4)])


MIXES: Mapping[str, Mix] = {
    "rows of 320 on average": _short,
    "chats": _chats,
    "chats and documents": _chats_and_documents,
    "a quarter long": _mostly_long,
}


def measure_fill(lengths: NDArray[np.int64], capacity: int) -> float:
    """Return the share of packed rows that is real tokens; the last, unfinished row counts as it is."""
    packs = best_fit_decreasing(lengths, capacity)
    return float(lengths.sum() / (len(packs) * capacity))


def main() -> None:
    """Pack every mix, and print how full the rows are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--cutoff-len", type=int, default=2048)
    options = parser.parse_args()
    for name, mix in MIXES.items():
        fill = measure_fill(mix(np.random.default_rng(0), options.rows), options.cutoff_len)
        print(f"{name:<24} {fill:.2%} {'ok' if fill >= BAR else 'MISSED'}")


if __name__ == "__main__":
    main()
