"""`tunesmith tune io`: the data of a run, the speed of its model, and settings of the loader measured against both."""

import itertools
import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch

from tunesmith.config import RunConfig
from tunesmith.data.streaming.pieces import PIECE_ROWS
from tunesmith.errors import ConfigError, DataError
from tunesmith.objectives.means import complete_step
from tunesmith.runtime.files import atomic_file, check_writable
from tunesmith.runtime.memory import cpu_quota
from tunesmith.runtime.optional import require
from tunesmith.training.assembly import RunParts, assemble_trainer
from tunesmith.training.io.batch_size import begin_small
from tunesmith.training.io.settings import LoaderSettings
from tunesmith.training.io.trials import (
    WARM_UP,
    DataPath,
    Feed,
    Model,
    PreparedRows,
    StandIn,
    Trial,
    choose_trial,
    fix_policy,
    list_settings,
    measure_grid,
    render_yaml,
)
from tunesmith.training.loaders import EpochBatches
from tunesmith.training.monitoring.closing import render_minutes
from tunesmith.training.monitoring.log import LOG_FILE, read_log
from tunesmith.training.run import prepare_parts, settle_parts
from tunesmith.training.trainer import ObjectiveTrainer

logger = logging.getLogger(__name__)

_MEASURED_BATCHES = 4
_FEWEST_BATCHES = 6
_MOST_BATCHES = 30
_MEASURED_SECONDS = 6.0
"""What the batches of a repeat take the model where nobody says how many they are: machines are noisy below that."""

_MOST_WORKERS_BY_DEFAULT = 8
_BLOCK_ROWS = 64
"""Rows of a stream that are shuffled, and packed, together while it is measured."""


@dataclass(frozen=True, slots=True)
class TuningOptions:
    """What to measure."""

    step_seconds: float | None = None
    """Time of the model for a micro-batch; found out where it is not given."""

    uses_model: bool = False
    """Run the model itself instead of something that takes as long."""

    workers: Sequence[int] | None = None
    prefetch: Sequence[int] = (2, 4)
    num_batches: int | None = None
    """Of each repeat; as many as the model takes a few seconds for where it is not given."""

    repeats: int = 3


@dataclass(frozen=True, slots=True)
class TuningReport:
    """What was measured, and what follows."""

    trials: tuple[Trial, ...]
    model: str
    """What the loader was measured against, in words."""

    asks_for_workers: tuple[str, ...] = ()
    """Settings of the configuration that are refused without workers."""

    @property
    def recommended(self) -> Trial | None:
        """The setting to use; `None` where all crashed."""
        return choose_trial(self.trials)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, as JSON holds it."""
        chosen = self.recommended
        return {
            "model": self.model,
            "trials": [trial.to_dict() for trial in self.trials],
            "recommended": None if chosen is None else chosen.to_dict(),
        }

    def render(self) -> str:
        """Return the table, the recommendation, and the YAML to paste."""
        heads = ("workers", "prefetch", "batches/s", "waiting", "CPU", "worker memory", "crashes")
        lines = [heads, *(_cells(trial) for trial in self.trials)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
        chosen = self.recommended
        table = []
        for line, trial in zip(lines, (None, *self.trials), strict=True):
            text = "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            table.append(f"{text}{'  <- recommended' if trial is not None and trial is chosen else ''}")
        troubles = dict.fromkeys(trial.trouble for trial in self.trials if trial.crashes)
        if chosen is None:
            ending = ["", "Every setting crashed; nothing can be recommended."]
        else:
            ending = ["", "Put this into the configuration:", "", render_yaml(chosen)]
            if not chosen.num_workers and self.asks_for_workers:
                ending.append(f"# and take out {' and '.join(self.asks_for_workers)}, which would need workers")
        return "\n".join([f"Measured against {self.model}.", "", *table, *troubles, *ending])


def _cells(trial: Trial) -> tuple[str, ...]:
    return (
        str(trial.num_workers),
        str(trial.prefetch_factor) if trial.num_workers else "-",
        f"{trial.batches_per_second:.2f}",
        f"{trial.wait_share:.1%}",
        f"{trial.cpu_percent:.0f}%",
        f"{trial.worker_bytes / 2**20:.0f} MiB",
        str(trial.crashes),
    )


def tune_io(config: RunConfig, options: TuningOptions) -> TuningReport:
    """Measure how the loader of a run should be set.

    Raises:
        DataError: The run has no rows to train on.
    """
    with TemporaryDirectory(prefix="tunesmith-tune-") as folder:
        # Trainer makes its folder; that of the run is not touched.
        training = replace(config.training, output_dir=folder)
        parts = settle_parts(prepare_parts(begin_small(replace(config, training=training))), training, None)
        return _tune(parts, options, Path(config.training.output_dir or "."))


def _tune(parts: RunParts, options: TuningOptions, output_dir: Path) -> TuningReport:
    stream = parts.data.stream
    if parts.data.train is None and stream is None:
        raise DataError("There is nothing to load: the run names no `dataset` to train on.")
    trainer = assemble_trainer(parts, None).trainer
    path = data_path(trainer)
    model, seconds, words = _choose_model(trainer, path, options, output_dir)
    workers = default_workers() if options.workers is None else options.workers
    if stream is not None:
        words += f", rows streamed in blocks of {_BLOCK_ROWS}"
    grid = list_settings(workers, options.prefetch)
    num_batches = options.num_batches or _enough_batches(seconds)
    logger.info(
        "Measuring %d settings of the loader %d times, with %d batches each: %s at least.",
        len(grid),
        options.repeats,
        num_batches,
        render_minutes(len(grid) * options.repeats * (num_batches + WARM_UP) * seconds),
    )
    trials = measure_grid(path, model, grid, num_batches=num_batches, repeats=options.repeats)
    return TuningReport(tuple(trials), words, parts.config.loading.asks_for_workers)


def _enough_batches(seconds: float) -> int:
    """Return how many batches to measure with a model that takes so long for one."""
    return max(_FEWEST_BATCHES, min(_MOST_BATCHES, round(_MEASURED_SECONDS / max(seconds, 1e-3))))


def data_path(trainer: ObjectiveTrainer) -> DataPath:
    """Return the way of a trainer's rows into its batches."""
    if trainer.stream is not None:
        return StreamedRows(trainer)

    def build_batches() -> EpochBatches:
        batches: EpochBatches = trainer.get_train_dataloader().batches
        return batches

    return PreparedRows(
        trainer.train_dataset,
        trainer.data_collator,
        build_batches,
        trainer.get_train_dataloader().feed.policy,
    )


@dataclass(frozen=True, slots=True)
class StreamedRows:
    """The way of rows into batches that are read as they come.

    Blocks of rows are small here, and pieces are of the size of a batch, so that a few batches show what reading and
    encoding costs. In a run that cost comes with each new block and piece.
    """

    trainer: ObjectiveTrainer

    def open(self, settings: LoaderSettings) -> tuple[Iterator[Any], Feed]:
        """Return the batches of the stream from its beginning."""
        source, policy = self.trainer.plan.stream, self.trainer.plan.loading
        assert source is not None
        small = replace(
            source.options,
            buffer_size=_BLOCK_ROWS,
            window_rows=min(_BLOCK_ROWS, source.options.window_rows),
            piece_rows=min(PIECE_ROWS, self.trainer.args.per_device_train_batch_size),
        )
        feed = self.trainer.build_stream(
            replace(source, options=replace(small, epochs=None)), fix_policy(policy, settings)
        )
        return iter(feed), feed


def default_workers() -> list[int]:
    """Return the numbers of workers to measure: none, and doubling up to twice the processors of this process."""
    most = max(2, min(_MOST_WORKERS_BY_DEFAULT, round(2 * cpu_quota())))
    numbers = itertools.takewhile(lambda number: number <= most, (2**power for power in itertools.count()))
    return [0, *numbers]


def _choose_model(
    trainer: ObjectiveTrainer, path: DataPath, options: TuningOptions, output_dir: Path
) -> tuple[Model, float, str]:
    """Return what takes the time of the model, how long that is for a batch, and what it is in words."""
    if options.uses_model:
        model = run_model(trainer)
        return model, measure_model(model, path), "the model itself, forwards and backwards"
    seconds, source = options.step_seconds, "as given"
    if seconds is None:
        seconds, source = find_logged_seconds(output_dir, trainer.args.gradient_accumulation_steps), "from its log"
    if seconds is None:
        seconds, source = measure_model(run_model(trainer), path), "measured"
    computes = trainer.args.device.type == "cpu"
    words = f"a model that takes {seconds * 1000:.4g} ms a micro-batch ({source})"
    return StandIn(seconds, computes=computes), seconds, words


def run_model(trainer: ObjectiveTrainer) -> Model:
    """Return what runs the model of a trainer on a batch and forgets the gradients."""

    def run(batch: Any) -> None:
        trainer.model.train()
        inputs = complete_step(trainer.objective, trainer.model, trainer._prepare_inputs(batch))
        trainer.compute_loss(trainer.model, inputs).backward()
        trainer.model.zero_grad()
        if trainer.args.device.type != "cpu":
            torch.accelerator.synchronize()

    return run


def measure_model(model: Model, path: DataPath) -> float:
    """Return the seconds that a model takes for a batch, median without the first."""
    seconds = []
    batches, feed = path.open(LoaderSettings())
    with closing(feed):
        for batch in itertools.islice(batches, _MEASURED_BATCHES):
            begin = perf_counter()
            model(batch)
            seconds.append(perf_counter() - begin)
    return median(seconds[1:] or seconds)


def find_logged_seconds(output_dir: Path, batches_per_step: int) -> float | None:
    """Return what an earlier run in a folder measured of its model, for one micro-batch."""
    file = output_dir / LOG_FILE
    if not file.is_file():
        return None
    timed = [line for line in read_log(file) if line.get("step_seconds")]
    steps = [line["step_seconds"] * (1 - line["data_wait_share"]) for line in timed]
    return median(steps) / batches_per_step if steps else None


def check_picture(target: Path) -> None:
    """Make sure that a picture can be drawn and written, before minutes are spent on measuring what is in it.

    Raises:
        ConfigError: Nothing can be written there.
        MissingDependencyError: There is nothing to draw with.
    """
    if target.exists() and not target.is_file():
        raise ConfigError(f"--plot is '{target}', which is no file that could be replaced; name one, such as io.png.")
    check_writable(target.parent, "--plot")
    _require_matplotlib()


def draw_trials(trials: Sequence[Trial], target: Path) -> None:
    """Draw batches a second over workers, one line for each number of batches ahead."""
    matplotlib = _require_matplotlib()
    figure = matplotlib.Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    trials = [trial for trial in trials if trial.batches_per_second]  # nothing is known of those that crashed each time
    none = [trial for trial in trials if trial.num_workers == 0]
    for ahead in sorted({trial.prefetch_factor for trial in trials if trial.num_workers}):
        line = [*none, *(trial for trial in trials if trial.num_workers and trial.prefetch_factor == ahead)]
        axes.plot(
            [trial.num_workers for trial in line],
            [trial.batches_per_second for trial in line],
            marker="o",
            label=f"{ahead} batches ahead",
        )
    if none and not any(trial.num_workers for trial in trials):
        axes.plot([0], [trial.batches_per_second for trial in none], marker="o", label="no workers")
    axes.set_xlabel("workers")
    axes.set_ylabel("batches/s")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if trials:
        axes.legend(frameon=False)
    with atomic_file(target) as beside:
        figure.savefig(beside, dpi=150, format="png")


def _require_matplotlib() -> Any:
    return require("matplotlib.figure", extra="plot", purpose="draw the picture that --plot asks for")
