"""The story of a run, read from top to bottom."""

import logging
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerState, enable_full_determinism, set_seed
from transformers.utils import logging as transformers_logging

from tunesmith.config import RunConfig
from tunesmith.config.objective import COMPLETION_STAGES
from tunesmith.config.training import TrainingConfig
from tunesmith.data import PreparedData, prepare_data
from tunesmith.data.batches import BatchLayout
from tunesmith.data.chat import resolve_template
from tunesmith.inference.load import load_run_tokenizer
from tunesmith.models import load_model, resolve_attention, resolve_device, resolve_precision
from tunesmith.models.adapters import check_adapter_options
from tunesmith.models.base_weights import load_base_config
from tunesmith.models.dropout import switch_dropout_off
from tunesmith.models.isolation import check_isolation
from tunesmith.models.reward import set_scoring_pad
from tunesmith.runtime.files import check_writable
from tunesmith.runtime.folder_lock import hold_folder
from tunesmith.runtime.memory import keep_freed_memory
from tunesmith.runtime.ranks import Ranks, current_ranks
from tunesmith.training.arguments import build_training_arguments
from tunesmith.training.assembly import AssembledTrainer, RunParts, assemble_trainer
from tunesmith.training.callbacks.custom import find_callbacks
from tunesmith.training.callbacks.interruption import Interruption
from tunesmith.training.checkpoints import remove_unfinished
from tunesmith.training.first_weights import begin_adapter
from tunesmith.training.io.batch_size import begin_small, settle_batch_size
from tunesmith.training.io.halving import explain_lack, lack_of_memory_told
from tunesmith.training.io.token_batches import find_token_batches
from tunesmith.training.layout import resolve_layout
from tunesmith.training.lineage import check_same_run
from tunesmith.training.objective import build_run_objective
from tunesmith.training.plan import render_plan
from tunesmith.training.precompute import precompute_reference
from tunesmith.training.prefix_sharing import resolve_prefix_sharing
from tunesmith.training.reference import find_reference_model
from tunesmith.training.reference_check import check_reference
from tunesmith.training.results import (
    remove_old_figures,
    save_evaluation,
    save_plot,
    save_predictions,
    save_settings,
    save_training,
)
from tunesmith.training.resume import ResumePoint, resolve_resume_point
from tunesmith.training.room import check_room_for_results
from tunesmith.training.row_tokens import find_most_tokens
from tunesmith.training.schedule import Schedule, estimate_schedule, stream_schedule
from tunesmith.training.trainer import ObjectiveTrainer

logger = logging.getLogger(__name__)

_TOLD_TOO_LATE = (
    "Told to stop after the last step: the training is whole, and evaluation and prediction are left out. For these, "
    "run again with resume_from_checkpoint=true."
)


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """What a run ended with."""

    trainer: ObjectiveTrainer
    state: TrainerState
    output_dir: Path
    metrics: Mapping[str, Any]
    is_interrupted: bool
    """Whether it was told to stop; its newest checkpoint is where it goes on."""


def run_training(config: RunConfig) -> TrainingResult:
    """Do everything that a configuration asks for, in this process: train, evaluate, predict.

    It is `tunesmith.train`, the call for notebooks, and what the command `tunesmith train` does.

    Raises:
        TunesmithError: Something about the settings, data, model or checkpoint stands in the way, or the numbers of
            the run went bad; the message says what to do.
    """
    output_dir = config.training.output_dir or "."
    check_writable(output_dir, "output_dir")
    try:
        with hold_folder(output_dir, "output_dir") if current_ranks().is_main else nullcontext(), lack_of_memory_told():
            return _run(config)
    except torch.OutOfMemoryError as error:
        raise explain_lack(error) from error


def _run(config: RunConfig) -> TrainingResult:
    training = config.training
    output_dir = training.output_dir or "."
    point = resolve_resume_point(training.resume_from_checkpoint, output_dir)
    if current_ranks().is_main:
        remove_unfinished(output_dir)
    if point is not None:
        check_same_run(config, point.manifest.settings, point.path)
    parts = settle_parts(prepare_parts(begin_small(config)), training, point)
    if point is None and parts.trains:
        begin_adapter(parts)
    assembled = assemble_trainer(parts, point)
    check_room_for_results(parts, 0 if point is None else point.manifest.step)
    parts = precompute_reference(parts, assembled.trainer)
    plan = render_plan(parts, point)
    logger.info("%s", plan)
    save_settings(parts, plan, run_id=assembled.trainer.plan.run_id)
    metrics: dict[str, Any] = {}
    if parts.trains:
        metrics.update(_train(parts, assembled, point))
    is_interrupted = _leaves_out_the_rest(parts, assembled.interruption)
    if training.do_eval and not is_interrupted:
        metrics.update(save_evaluation(parts, assembled.trainer, point))
    if training.do_predict and not is_interrupted:
        metrics.update(save_predictions(parts, assembled))
    if not parts.trains:
        logger.info("Results are in %s.", parts.output_dir)
    return TrainingResult(assembled.trainer, assembled.trainer.state, parts.output_dir, metrics, is_interrupted)


def _leaves_out_the_rest(parts: RunParts, interruption: Interruption) -> bool:
    """Return whether the run ends here: stopped in training, or told to stop before what comes after it."""
    if interruption.step is not None or not parts.trains:
        return interruption.step is not None
    training = parts.config.training
    if not (training.do_eval or training.do_predict) or not interruption.is_asked_anywhere():
        return False
    logger.warning("%s", _TOLD_TOO_LATE)
    return True


def prepare_parts(config: RunConfig) -> RunParts:
    """Load and prepare everything that a run needs; what is found wrong fastest comes first: data before the model."""
    find_callbacks(config.training.callbacks)
    check_adapter_options(config.adapter)
    ranks = current_ranks()
    transformers_logging.disable_progress_bar()
    device = resolve_device(use_cpu=config.training.use_cpu, ranks=ranks)
    if device.type == "cpu":
        keep_freed_memory()
    precision = resolve_precision(config, device)
    arguments = build_training_arguments(config, precision.autocast_dtype, ranks)
    attention = resolve_attention(
        config.model.flash_attn, device, load_base_config(config), precision, shares_prompts=config.may_share_prompts
    )
    layout = resolve_layout(config, attention)
    tokenizer = load_run_tokenizer(config)
    template = None if config.objective.stage == "pt" else resolve_template(config.data, tokenizer)
    data = prepare_data(config, tokenizer, template, ranks)
    schedule = _find_schedule(config, data, layout, ranks)
    if template is not None:
        template.apply_to_tokenizer(tokenizer)
    if template is not None and config.objective.stage == "rm":
        set_scoring_pad(tokenizer, template.end_markers)
    # Before the model: the adapter's weights are drawn, and cuBLAS takes its settings at the first product.
    (enable_full_determinism if config.training.full_determinism else set_seed)(config.training.seed)
    loaded = load_model(config, tokenizer, layout=layout, most_tokens=find_most_tokens(config, data.train, layout))
    if config.objective.stage in COMPLETION_STAGES:
        switch_dropout_off(loaded.model)
    objective = build_run_objective(config, loaded, data)
    reference = find_reference_model(objective)
    if reference is not None and (layout == "flat" or config.packs):
        check_isolation(reference, layout, loaded.precision)  # that of the policy was looked at as it was loaded
    return RunParts(
        config=config,
        ranks=ranks,
        arguments=arguments,
        tokenizer=tokenizer,
        template=template,
        data=data,
        loaded=loaded,
        layout=layout,
        objective=objective,
        schedule=schedule,
        prefix_sharing=resolve_prefix_sharing(config, loaded, layout, data, reference),
    )


def settle_parts(parts: RunParts, training: TrainingConfig, point: ResumePoint | None) -> RunParts:
    """Return the parts of a run with the batch size that is found out by trying, where that is asked for.

    Args:
        parts: Prepared for small batches, see `begin_small`.
        training: As it was written.
        point: Checkpoint to go on from.
    """
    goes_by_tokens = parts.config.loading.tokens_per_device_batch is not None
    if training.per_device_train_batch_size != "auto" or goes_by_tokens or not parts.trains:
        return parts
    config = settle_batch_size(parts, point)
    return replace(
        parts,
        config=config,
        arguments=build_training_arguments(config, parts.loaded.precision.autocast_dtype, parts.ranks),
        schedule=_find_schedule(config, parts.data, parts.layout, parts.ranks),
    )


def _find_schedule(config: RunConfig, data: PreparedData, layout: BatchLayout, ranks: Ranks) -> Schedule | None:
    """Return the length of the training, or `None` where none is asked for. Asking for nothing is asking for it."""
    training = config.training
    if not training.do_train and (training.do_eval or training.do_predict):
        return None
    if data.stream is not None:
        return stream_schedule(config, ranks)
    if data.train is None:
        return estimate_schedule(config, 0, ranks)
    return estimate_schedule(config, len(data.train), ranks, find_token_batches(config, data.train, layout, ranks))


def _train(parts: RunParts, assembled: AssembledTrainer, point: ResumePoint | None) -> dict[str, Any]:
    trainer, interruption = assembled.trainer, assembled.interruption
    if point is None:
        check_reference(parts, trainer)
    try:
        outcome = trainer.train(resume_from_checkpoint=None if point is None else str(point.path))
        if interruption.step is None:
            if point is None:
                remove_old_figures(parts)
            return save_training(parts, trainer, outcome.metrics)
        logger.warning(
            "Stopped after step %d. Go on with: resume_from_checkpoint=true (checkpoint in %s).",
            interruption.step,
            parts.output_dir / f"checkpoint-{interruption.step}",
        )
        return {}
    finally:
        interruption.release()
        assembled.progress.close()
        save_plot(parts)
