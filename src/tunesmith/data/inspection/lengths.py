"""How long rows are: a histogram as text and as a picture."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tunesmith.runtime.files import atomic_file
from tunesmith.runtime.optional import require

_MOST_BINS = 20
_BAR_WIDTH = 50


@dataclass(frozen=True, slots=True)
class LengthHistogram:
    """Numbers of rows by length, in bins of equal width from 0 on."""

    width: int
    """Tokens that a bin spans: 1, 2 or 5 times a power of 10."""

    counts: tuple[int, ...]
    """Bin `i` counts the rows of `i * width` tokens to `(i + 1) * width - 1`."""

    def render(self) -> str:
        """Return the histogram as lines of text, one per bin."""
        most = max(self.counts, default=0)
        column = max(len("from"), len(f"{len(self.counts) * self.width:,}"))
        lines = []
        for number, count in enumerate(self.counts):
            bar = "#" * max(round(_BAR_WIDTH * count / most), count > 0) if most else ""
            lines.append(f"  {f'{number * self.width:,}':>{column}}  {count:>10,}  {bar}".rstrip())
        return "\n".join([f"  {'from':>{column}}  {'rows':>10}", *lines])


def build_histogram(lengths: NDArray[np.int64]) -> LengthHistogram:
    """Sort rows into at most 20 bins of a round width.

    Args:
        lengths: Tokens of each row. Shape [rows].
    """
    longest = int(lengths.max()) if len(lengths) else 0
    width = next(
        step * 10**power for power in range(19) for step in (1, 2, 5) if longest // (step * 10**power) < _MOST_BINS
    )
    counts = np.bincount(lengths // width, minlength=1)
    return LengthHistogram(width, tuple(int(count) for count in counts))


def draw_histogram(histogram: LengthHistogram, cutoff_len: int, path: Path) -> None:
    """Draw the histogram as a PNG.

    Args:
        histogram: To draw.
        cutoff_len: Largest length that rows are cut to, marked where it is in the picture.
        path: File to write; whole or not at all.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    # Figure instead of pyplot: pyplot keeps every figure alive and asks for a display.
    matplotlib = require("matplotlib.figure", extra="plot", purpose="draw the lengths of rows")
    figure = matplotlib.Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    starts = [number * histogram.width for number in range(len(histogram.counts))]
    axes.bar(starts, histogram.counts, width=histogram.width * 0.95, align="edge", color="#1f5fa8")
    if cutoff_len <= starts[-1] + histogram.width:
        axes.axvline(cutoff_len, color="#d9730d", linewidth=1.5, label=f"cutoff_len {cutoff_len:,}")
        axes.legend(frameon=False)
    axes.set_xlabel("tokens of a row")
    axes.set_ylabel("rows")
    axes.grid(alpha=0.3, axis="y")
    with atomic_file(path) as beside:
        figure.savefig(beside, dpi=150, format="png")
