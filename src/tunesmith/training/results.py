"""What a run leaves in its folder."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peft import PeftModel

from tunesmith.data.prepared import EVAL_NAME
from tunesmith.errors import CheckpointError, MissingDependencyError
from tunesmith.evaluation.predictions import FILE_NAME as PREDICTIONS_FILE
from tunesmith.evaluation.predictions import predict
from tunesmith.models.adapters.vllm import judge_saved
from tunesmith.runtime.disk import name_failed_file
from tunesmith.runtime.files import explain_failed_writes, write_json_atomic, write_text_atomic
from tunesmith.training.assembly import AssembledTrainer, RunParts
from tunesmith.training.checkpoints import MAKE_ROOM
from tunesmith.training.monitoring.account import describe_times
from tunesmith.training.monitoring.closing import render_feeding
from tunesmith.training.monitoring.log import measure_memory
from tunesmith.training.monitoring.pace import render_duration
from tunesmith.training.monitoring.plot import plot_run
from tunesmith.training.plan import PLAN_FILE
from tunesmith.training.resume import ResumePoint, save_run_id
from tunesmith.training.saved_sizes import saved_bytes
from tunesmith.training.streaming import report_streamed
from tunesmith.training.trainer import ObjectiveTrainer

logger = logging.getLogger(__name__)

DATA_REPORT = "data_report.json"
_FIGURES = (*(f"{kind}_results.json" for kind in ("all", "train", "eval", "predict")), PREDICTIONS_FILE)


def save_settings(parts: RunParts, plan: str, *, run_id: str) -> None:
    """Write what the run is about to do: its configuration, plan and account of rows, and whose folder it is."""
    if not parts.ranks.is_main:
        return
    account = parts.data.report.to_dict()
    if parts.schedule is not None:
        account["left_out_per_epoch"] = parts.schedule.rows_left_out
        save_run_id(parts.output_dir, run_id)
    write_text_atomic(parts.output_dir / "run.yaml", parts.config.to_yaml())
    write_text_atomic(parts.output_dir / PLAN_FILE, plan + "\n")
    write_json_atomic(parts.output_dir / DATA_REPORT, account)


def remove_old_figures(parts: RunParts) -> None:
    """Remove the figures and answers of an older run, whose weights this one is about to replace.

    They would stand beside weights that they do not describe, and `all_results.json` would mix both runs.
    """
    if parts.ranks.is_main:
        for name in _FIGURES:
            (parts.output_dir / name).unlink(missing_ok=True)


def save_training(parts: RunParts, trainer: ObjectiveTrainer, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Write weights, tokenizer, template, state and figures of a finished training, and return the figures."""
    figures = {**metrics, **_training_figures(parts, trainer)}
    needed = saved_bytes(trainer.model)
    with explain_failed_writes(parts.output_dir, CheckpointError, MAKE_ROOM, needed):
        trainer.save_model()
        trainer.save_state()
    _save_figures(parts, trainer, "train", figures)
    _save_streamed(parts, trainer)
    logger.info("%s", render_summary(parts, trainer, figures))
    if parts.ranks.is_main and isinstance(parts.loaded.model, PeftModel):
        _advise_on_serving(parts.output_dir)
    return figures


def _save_figures(parts: RunParts, trainer: ObjectiveTrainer, split: str, figures: Mapping[str, Any]) -> None:
    with name_failed_file(parts.output_dir):
        trainer.save_metrics(split, figures)


def _advise_on_serving(folder: Path) -> None:
    """Say what vLLM would refuse of the adapter in a folder, or has to be told."""
    if advice := judge_saved(folder).render_advice(folder):
        logger.info("%s", advice)


def _save_streamed(parts: RunParts, trainer: ObjectiveTrainer) -> None:
    """Complete the account of rows with those that were read on the way."""
    if trainer.stream is None or parts.data.stream is None:
        return
    gathered = trainer.gather(trainer.stream.loader.tallies)
    if parts.ranks.is_main:
        path = parts.output_dir / DATA_REPORT
        account = json.loads(path.read_text(encoding="utf-8"))
        account["streamed"] = report_streamed(parts.data.stream, gathered)
        write_json_atomic(path, account)


def _training_figures(parts: RunParts, trainer: ObjectiveTrainer) -> dict[str, Any]:
    meter = trainer.meter
    seconds = max(meter.busy_seconds, 1e-9)
    figures: dict[str, Any] = {
        "train_loss": meter.mean_loss,
        "total_tokens": meter.real_tokens,
        "padded_tokens": meter.computed_tokens,
        "tokens_per_second": round(meter.real_tokens / seconds, 2),
        **describe_times(meter.phase_seconds, meter.run_steps),
        **measure_memory(),
    }
    if parts.config.training.include_effective_tokens_per_second:
        figures["effective_tokens_per_sec"] = round(meter.items / seconds, 2)
    return figures


def render_summary(parts: RunParts, trainer: ObjectiveTrainer, figures: Mapping[str, Any]) -> str:
    """Return the few lines that end a training."""
    peak = figures.get("device_peak_memory_gb", figures["peak_memory_gb"])
    numbers = [
        f"loss {figures['train_loss']:.4f}",
        f"{figures['total_tokens']:,} tokens",
        f"{figures['tokens_per_second']:,.0f} tokens/s",
        f"peak memory {peak:.2f} GB",
        f"{figures['data_wait_share']:.1%} of the time waiting for data",
    ]
    duration = render_duration(trainer.meter.busy_seconds)
    num_steps = trainer.state.global_step
    meter, feeding = trainer.meter, ""
    times = meter.phase_seconds, meter.session_phase_seconds
    if trainer.feed is not None:
        feeding = render_feeding(*times, trainer.feed, parts.ranks.rank) + "\n"
    elif trainer.stream is not None:
        stream = trainer.stream
        feeding = render_feeding(*times, stream.pieces, parts.ranks.rank, stream.num_made) + "\n"
    return (
        f"Trained {num_steps:,} step{'' if num_steps == 1 else 's'} in {duration}: {', '.join(numbers)}.\n"
        f"{feeding}Results are in {parts.output_dir}."
    )


def save_evaluation(parts: RunParts, trainer: ObjectiveTrainer, point: ResumePoint | None) -> dict[str, Any]:
    """Measure the evaluation set, unless the last step of this run just did, and write the figures."""
    metrics = _find_last_evaluation(parts, trainer, point) or trainer.evaluate()
    _save_figures(parts, trainer, "eval", metrics)
    logger.info("%s", render_scores("Evaluation", "eval", metrics))
    return metrics


def _find_last_evaluation(
    parts: RunParts, trainer: ObjectiveTrainer, point: ResumePoint | None
) -> dict[str, Any] | None:
    """Return the figures of the weights as they are now, if this run has measured them."""
    step = trainer.state.global_step
    if parts.config.training.load_best_model_at_end or step <= (0 if point is None else point.manifest.step):
        return None
    for line in reversed(trainer.state.log_history):
        if line["step"] == step and "eval_loss" in line:
            return {name: value for name, value in line.items() if name != "step"}
    return None


def save_predictions(parts: RunParts, assembled: AssembledTrainer) -> dict[str, Any]:
    """Answer the questions of the evaluation set, and write answers and scores."""
    options = parts.config.generation
    path = parts.output_dir / PREDICTIONS_FILE
    rows = parts.data.evals[EVAL_NAME]
    scores = predict(assembled.generator, rows, parts.tokenizer, path, options=options)
    metrics: dict[str, Any] = {f"predict_{name}": value for name, value in scores.items()}
    _save_figures(parts, assembled.trainer, "predict", metrics)
    logger.info("%s\nThe answers are in %s.", render_scores("Prediction", "predict", metrics), path)
    return metrics


def render_scores(title: str, prefix: str, metrics: Mapping[str, Any]) -> str:
    """Return the scores of an evaluation as a line; how long it took is in the files."""
    speeds = ("runtime", "per_second", "epoch")
    scores = {name.removeprefix(f"{prefix}_"): value for name, value in metrics.items() if not name.endswith(speeds)}
    numbers = [
        f"{name} {value:.4f}" if isinstance(value, float) else f"{name} {value}" for name, value in scores.items()
    ]
    return f"{title}: {', '.join(numbers)}."


def save_plot(parts: RunParts) -> None:
    """Draw the log of the run if it was asked for; also called when a run was interrupted or failed.

    A picture that cannot be drawn is a warning: it must not hide the error that ended the run, nor undo a good one.
    """
    if not (parts.config.training.plot_loss and parts.ranks.is_main):
        return
    try:
        path = plot_run(parts.output_dir)
    except (OSError, MissingDependencyError) as error:
        logger.warning("No picture was drawn: %s", error)
        return
    if path is not None:
        logger.info("Drew %s.", path)
