"""A picture of a run: `training_loss.png`, drawn from its log, so that an interrupted run has one too."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tunesmith.runtime.files import atomic_file
from tunesmith.runtime.optional import require
from tunesmith.training.monitoring.account import PHASES
from tunesmith.training.monitoring.log import LOG_FILE, read_log

logger = logging.getLogger(__name__)

PLOT_FILE = "training_loss.png"
_BLUE, _ORANGE, _GREEN, _GREY = "#1f5fa8", "#d9730d", "#2e8b57", "#9db7d5"
_PHASE_COLOURS = ("#c0392b", "#8e7cc3", "#9db7d5", "#1f5fa8", "#2e8b57", "#bbbbbb")
_HALF_LIFE_SHARE = 0.02
"""Half-life of the smoothing, as a share of the points of a run."""


def plot_run(output_dir: str | Path) -> Path | None:
    """Draw the log of a run, and return the picture, or `None` where nothing was logged yet."""
    folder = Path(output_dir)
    log = folder / LOG_FILE
    lines = read_log(log) if log.exists() else []
    if not any("loss" in line for line in lines):
        logger.warning("no picture was drawn: %s holds no training loss (logging_steps may be too large)", log)
        return None
    figure = _draw(lines)
    target = folder / PLOT_FILE
    with atomic_file(target) as beside:
        figure.savefig(beside, dpi=150, format="png")
    return target


def _draw(lines: Sequence[Mapping[str, Any]]) -> Any:
    # Figure instead of pyplot: pyplot keeps every figure alive and asks for a display.
    matplotlib = require("matplotlib.figure", extra="plot", purpose="draw the picture that plot_loss asks for")
    panels = [(_draw_losses, 2.4), (_draw_rate_and_norm, 1.0), (_draw_times, 1.0)]
    if _is_of_preferences(lines):
        panels.insert(1, (_draw_preferences, 1.4))
    ratios = [ratio for _, ratio in panels]
    figure = matplotlib.Figure(figsize=(9, sum(ratios) * 8.5 / 4.4), layout="constrained")
    for (draw, _), axes in zip(panels, figure.subplots(len(panels), 1, sharex=True, height_ratios=ratios), strict=True):
        draw(axes, lines)
    figure.suptitle("Training", fontsize=12)
    return figure


def _draw_losses(axes: Any, lines: Sequence[Mapping[str, Any]]) -> None:
    steps, losses = _series(lines, "loss")
    marker = "o" if len(steps) == 1 else None
    axes.plot(steps, losses, color=_GREY, linewidth=1, marker=marker, label="loss")
    if len(steps) > 2:
        axes.plot(steps, smooth(losses), color=_BLUE, linewidth=2, label="loss, smoothed")
    names = sorted({key for line in lines for key in line if key.startswith("eval_") and key.endswith("loss")})
    for name, colour in zip(names, [_ORANGE, _GREEN, "#8e44ad", "#444444"] * len(names), strict=False):
        eval_steps, values = _series(lines, name)
        axes.plot(
            eval_steps, values, color=colour, marker="o", markersize=4, linewidth=1.5, label=name.replace("_", " ")
        )
    axes.set_ylabel("loss per token (nats)" if not _is_of_preferences(lines) else "loss per row")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def _draw_preferences(axes: Any, lines: Sequence[Mapping[str, Any]]) -> None:
    """Draw how often the chosen completion wins, and by how much; dots are evaluations."""
    margin_axes = axes.twinx()
    handles = []
    for target, names, colour in (
        (axes, ("rewards/accuracies", "accuracy"), _BLUE),
        (margin_axes, ("rewards/margins", "margin", "rewards/chosen"), _ORANGE),
    ):
        name = next((each for each in names if any(each in line for line in lines)), None)
        if name is None:
            continue
        label = {"rewards/accuracies": "accuracy", "rewards/margins": "margin"}.get(name, name.replace("/", ", "))
        steps, values = _series(lines, name)
        handles += target.plot(steps, smooth(values), color=colour, linewidth=1.5, label=label)
        handles += target.plot(*_series(lines, f"eval_{name}"), "o", color=colour, markersize=4, label=f"eval {label}")
        target.set_ylabel(label, color=colour)
    if handles and handles[0].axes is axes:
        axes.set_ylim(0, 1.02)
    axes.grid(alpha=0.3)
    axes.legend(handles=handles, frameon=False, loc="lower right", fontsize="small")


def _is_of_preferences(lines: Sequence[Mapping[str, Any]]) -> bool:
    return any("rewards/chosen" in line for line in lines)


def _draw_rate_and_norm(axes: Any, lines: Sequence[Mapping[str, Any]]) -> None:
    steps, rates = _series(lines, "lr")
    handles = axes.plot(steps, rates, color=_BLUE, linewidth=1.5, label="learning rate")
    axes.set_ylabel("learning rate", color=_BLUE)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 2))
    axes.grid(alpha=0.3)
    norm_steps, norms = _series(lines, "grad_norm")
    if norm_steps:
        norm_axes = axes.twinx()
        handles += norm_axes.plot(norm_steps, norms, color=_ORANGE, linewidth=1, alpha=0.8, label="gradient norm")
        norm_axes.set_ylabel("gradient norm", color=_ORANGE)
        norm_axes.set_ylim(bottom=0)
    axes.legend(handles=handles, frameon=False, loc="upper right")


def _draw_times(axes: Any, lines: Sequence[Mapping[str, Any]]) -> None:
    """Stack the shares of the phases; lines of older logs that have none leave the panel empty."""
    axes.set_xlabel("step")
    axes.set_ylabel("share of time")
    axes.set_ylim(0, 1)
    timed = [line for line in lines if line.get("other_share") is not None]
    if not timed:
        return
    steps = [int(line["current_steps"]) for line in timed]
    stacks = [[float(line[f"{phase}_share"]) for line in timed] for phase in PHASES if phase != "data"]
    waiting = [max(0.0, 1.0 - sum(others)) for others in zip(*stacks, strict=True)]
    if len(steps) == 1:  # an area needs a width
        steps, waiting, stacks = [steps[0] - 1, steps[0]], waiting * 2, [stack * 2 for stack in stacks]
    labels = ["data (waiting)", *(phase for phase in PHASES if phase != "data")]
    axes.stackplot(steps, waiting, *stacks, labels=labels, colors=_PHASE_COLOURS, step="pre")
    axes.legend(frameon=True, loc="upper right", ncols=len(labels), fontsize="x-small")


def _series(lines: Sequence[Mapping[str, Any]], key: str) -> tuple[list[int], list[float]]:
    pairs = [(int(line["current_steps"]), float(line[key])) for line in lines if line.get(key) is not None]
    return [step for step, _ in pairs], [value for _, value in pairs]


def smooth(values: Sequence[float]) -> list[float]:
    """Return the exponential moving average, corrected for its start as Adam's moments are."""
    keep = 0.5 ** (1 / max(1.0, _HALF_LIFE_SHARE * len(values)))
    smoothed: list[float] = []
    average = weight = 0.0
    for value in values:
        average = keep * average + (1 - keep) * value
        weight = keep * weight + (1 - keep)
        smoothed.append(average / weight)
    return smoothed
