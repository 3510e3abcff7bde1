"""`tunesmith tune io`: the data of a run, the speed of its model, and settings of the loader measured against both."""

import itertools
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch

from tunesmith.config import RunConfig
from tunesmith.errors import ConfigError, DataError
from tunesmith.runtime.memory import cpu_quota
from tunesmith.runtime.optional import require
from tunesmith.training.assembly import RunParts, assemble_trainer
from tunesmith.training.io.batch_size import begin_small
from tunesmith.training.io.settings import LoaderSettings
from tunesmith.training.io.trials import DataPath, Model, StandIn, Trial, choose_trial, measure_grid, render_yaml
from tunesmith.training.loaders import EpochBatches
from tunesmith.training.monitoring.log import LOG_FILE, read_log
from tunesmith.training.run import prepare_parts
from tunesmith.training.trainer import ObjectiveTrainer

_MEASURED_BATCHES = 4
_MOST_WORKERS_BY_DEFAULT = 8


@dataclass(frozen=True, slots=True)
class TuningOptions:
    """What to measure."""

    step_seconds: float | None = None
    """Time of the model for a micro-batch; found out where it is not given."""

    uses_model: bool = False
    """Run the model itself instead of something that takes as long."""

    workers: Sequence[int] | None = None
    prefetch: Sequence[int] = (2, 4)
    num_batches: int = 30
    repeats: int = 3


@dataclass(frozen=True, slots=True)
class TuningReport:
    """What was measured, and what follows."""

    trials: tuple[Trial, ...]
    model: str
    """What the loader was measured against, in words."""

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
        ConfigError: The rows of the run are streamed.
        DataError: The run has no rows to train on.
    """
    if config.data.streaming:
        raise ConfigError(
            "`tunesmith tune io` measures how prepared rows are loaded, and `streaming: true` reads rows as they come. "
            "Measure without it, or compare the `data_wait_share` of short runs with different dataloader_num_workers."
        )
    with TemporaryDirectory(prefix="tunesmith-tune-") as folder:
        # Trainer makes its folder; that of the run is not touched.
        training = replace(config.training, output_dir=folder)
        parts = prepare_parts(begin_small(replace(config, training=training)))
        return _tune(parts, options, Path(config.training.output_dir or "."))


def _tune(parts: RunParts, options: TuningOptions, output_dir: Path) -> TuningReport:
    if parts.data.train is None:
        raise DataError("There is nothing to load: the run names no `dataset` to train on.")
    trainer = assemble_trainer(parts, None).trainer
    path = data_path(trainer)
    model, words = _choose_model(trainer, path, options, output_dir)
    workers = default_workers() if options.workers is None else options.workers
    trials = measure_grid(
        path,
        model,
        workers=workers,
        prefetch=options.prefetch,
        num_batches=options.num_batches,
        repeats=options.repeats,
    )
    return TuningReport(tuple(trials), words)


def data_path(trainer: ObjectiveTrainer) -> DataPath:
    """Return the way of a trainer's rows into its batches."""

    def build_batches() -> EpochBatches:
        batches: EpochBatches = trainer.get_train_dataloader().batches
        return batches

    return DataPath(
        trainer.train_dataset,
        trainer.data_collator,
        build_batches,
        trainer.get_train_dataloader().feed.policy,
    )


def default_workers() -> list[int]:
    """Return the numbers of workers to measure: none, and doubling up to twice the processors of this process."""
    most = max(2, min(_MOST_WORKERS_BY_DEFAULT, round(2 * cpu_quota())))
    numbers = itertools.takewhile(lambda number: number <= most, (2**power for power in itertools.count()))
    return [0, *numbers]


def _choose_model(
    trainer: ObjectiveTrainer, path: DataPath, options: TuningOptions, output_dir: Path
) -> tuple[Model, str]:
    if options.uses_model:
        return run_model(trainer), "the model itself, forwards and backwards"
    seconds, source = options.step_seconds, "as given"
    if seconds is None:
        seconds, source = find_logged_seconds(output_dir, trainer.args.gradient_accumulation_steps), "from its log"
    if seconds is None:
        seconds, source = measure_model(run_model(trainer), path), "measured"
    computes = trainer.args.device.type == "cpu"
    return StandIn(seconds, computes=computes), f"a model that takes {seconds * 1000:.4g} ms a micro-batch ({source})"


def run_model(trainer: ObjectiveTrainer) -> Model:
    """Return what runs the model of a trainer on a batch and forgets the gradients."""

    def run(batch: Any) -> None:
        trainer.model.train()
        trainer.compute_loss(trainer.model, trainer._prepare_inputs(batch)).backward()
        trainer.model.zero_grad()
        if trainer.args.device.type != "cpu":
            torch.accelerator.synchronize()

    return run


def measure_model(model: Model, path: DataPath) -> float:
    """Return the seconds that a model takes for a batch, median without the first."""
    seconds = []
    loader = path.load(LoaderSettings())
    with closing(loader.feed):
        for batch in itertools.islice(loader, _MEASURED_BATCHES):
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


def draw_trials(trials: Sequence[Trial], target: Path) -> None:
    """Draw batches a second over workers, one line for each number of batches ahead."""
    matplotlib = require("matplotlib.figure", extra="plot", purpose="draw the picture that --plot asks for")
    figure = matplotlib.Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    none = [trial for trial in trials if trial.num_workers == 0]
    for ahead in sorted({trial.prefetch_factor for trial in trials if trial.num_workers}):
        line = [*none, *(trial for trial in trials if trial.num_workers and trial.prefetch_factor == ahead)]
        axes.plot(
            [trial.num_workers for trial in line],
            [trial.batches_per_second for trial in line],
            marker="o",
            label=f"{ahead} batches ahead",
        )
    if not any(trial.num_workers for trial in trials):
        axes.plot([0], [trial.batches_per_second for trial in none], marker="o", label="no workers")
    axes.set_xlabel("workers")
    axes.set_ylabel("batches/s")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(target, dpi=150, format="png")
