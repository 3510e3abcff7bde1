"""The plan of a run: what will happen, on one page, before it happens."""

import sys
from collections.abc import Iterator

import torch

from tunesmith.config.objective import COMPLETION_STAGES
from tunesmith.config.preference import PreferenceConfig
from tunesmith.models.attention import find_recurrence
from tunesmith.objectives import Objective
from tunesmith.objectives.feedback import FeedbackObjective
from tunesmith.objectives.preference import PreferenceObjective
from tunesmith.training.assembly import RunParts
from tunesmith.training.io.planning import find_loading_notes, render_loading
from tunesmith.training.io.settings import resolve_policy
from tunesmith.training.io.token_batches import TokenBatches, find_token_batches
from tunesmith.training.resume import ResumePoint
from tunesmith.training.schedule import Schedule

PLAN_FILE = "plan.txt"


def render_plan(parts: RunParts, point: ResumePoint | None) -> str:
    """Return the plan as text."""
    lines = [f"{name + ':':<11}{text}" for name, text in _lines(parts, point)]
    weights = [f"  {line}" for line in parts.loaded.parameters.render().splitlines()]
    plan = [f"  {line}" for line in lines]
    return "\n".join(["Plan", *plan, "Weights", *weights, "Data", parts.data.report.render()])


def _lines(parts: RunParts, point: ResumePoint | None) -> Iterator[tuple[str, str]]:
    config, loaded = parts.config, parts.loaded
    yield "model", f"{config.model.model_name_or_path}, {_tuning(parts)}"
    yield "weights", loaded.parameters.render_line()
    yield "numbers", _precision(parts)
    if config.objective.stage in COMPLETION_STAGES:
        yield "loss", _loss(parts)
        if config.objective.stage != "rm":
            yield "reference", describe_reference(parts.objective)
    yield "attention", f"{loaded.attention.implementation} ({loaded.attention.reason})"
    yield "batches", _batches(parts)
    if parts.schedule is not None:
        yield "steps", _steps(parts, parts.schedule, point)
        yield from _loading(parts, parts.schedule)
    if loaded.memory is not None:
        yield "memory", f"about {loaded.memory.total / 1e9:.1f} GB at the longest rows"
    for item in parts.data.sets:
        for note in item.spec.notes:
            yield "data", f"{item.spec.name}: {note}"
    for note in (*loaded.notes, *config.notes(), *_notes(parts)):
        yield "note", note
    yield "output", str(parts.output_dir)


def _loading(parts: RunParts, schedule: Schedule) -> Iterator[tuple[str, str]]:
    if parts.data.train is None and parts.data.stream is None:
        return
    policy = resolve_policy(parts.config.loading, parts.arguments.device.type)
    # Nobody counts the batches of a stream.
    num_batches = (schedule.steps_per_epoch or sys.maxsize) * parts.config.training.gradient_accumulation_steps
    yield "loading", render_loading(policy, parts.ranks, num_batches)
    for note in find_loading_notes(policy, parts.ranks, _token_batches(parts), num_batches):
        yield "note", note
    if parts.config.loading.dataloader_pin_memory is True and not policy.pins_memory:
        yield "note", f"{parts.config.cite('dataloader_pin_memory')} has no effect without a GPU."


def _notes(parts: RunParts) -> Iterator[str]:
    schedule = parts.schedule
    if schedule is not None and schedule.rows_left_out:
        yield (
            f"`dataloader_drop_last: true` leaves out {schedule.rows_left_out:,} rows of each epoch, which do not fill "
            "a batch."
        )
    recurrence = find_recurrence(parts.loaded.model.config)
    if recurrence and parts.config.packs:
        yield f"packed texts are not kept apart: {recurrence}."


def _tuning(parts: RunParts) -> str:
    adapter = parts.config.adapter
    kind: str = adapter.finetuning_type.replace("_", " ")
    if kind == "lora":
        kind = f"lora rank {adapter.lora_rank} on {','.join(adapter.lora_target)}"
    return f"stage {parts.config.objective.stage}, {kind}"


def _loss(parts: RunParts) -> str:
    preference, objective = parts.config.preference, parts.objective
    if isinstance(objective, FeedbackObjective):
        side = f", {preference.pref_ftx:g} x cross entropy of desirable completions" if preference.pref_ftx else ""
        return (
            f"kto, beta {preference.pref_beta:g}, desirable completions weigh {objective.desirable_weight:.4g} and "
            f"others {objective.undesirable_weight:.4g}{side}"
        )
    if not isinstance(objective, PreferenceObjective):
        coefficient = preference.center_rewards_coefficient
        return f"Bradley-Terry{f', scores centred with weight {coefficient:g}' if coefficient else ''}"
    weights = preference.pref_loss_weights or (1.0,) * len(preference.pref_loss)
    names = [
        name if weight == 1 else f"{weight:g} x {name}"
        for name, weight in zip(preference.pref_loss, weights, strict=True)
    ]
    names += [f"{preference.pref_ftx:g} x cross entropy of the chosen"] if preference.pref_ftx else []
    return ", ".join([" + ".join(names), f"beta {preference.pref_beta:g}", *_variations(preference)])


def _variations(preference: PreferenceConfig) -> Iterator[str]:
    """Yield what changes the losses of pairs besides their names and beta."""
    if preference.dpo_label_smoothing:
        yield f"label smoothing {preference.dpo_label_smoothing:g}"
    if preference.pref_length_normalization:
        yield "log-ratios per token"
    if preference.ld_alpha is not None:
        yield f"what only the longer completion has weighs {preference.ld_alpha:g}"
    if preference.pref_bco_weight:
        yield f"mixed with {preference.pref_bco_weight:g} x bco_pair"


def describe_reference(objective: Objective) -> str:
    """Return what the policy is measured against."""
    reference = objective.reference if isinstance(objective, PreferenceObjective | FeedbackObjective) else None
    return "none, the loss needs none" if reference is None else reference.describe()


def _precision(parts: RunParts) -> str:
    precision = parts.loaded.precision
    types = [f"trained {_name(precision.trained_dtype)}"]
    if parts.loaded.parameters.trainable < parts.loaded.parameters.total:
        types.insert(0, f"frozen {_name(precision.frozen_dtype)}")
    if precision.autocast_dtype is not None:
        types.append(f"computed in {_name(precision.autocast_dtype)}")
    return f"{', '.join(types)} ({precision.reason})"


def _batches(parts: RunParts) -> str:
    layout = "rows end to end, no padding" if parts.layout == "flat" else "rows side by side, padded"
    packed = ", several samples in each row" if parts.config.packs else ""
    sharing = f"; {parts.prefix_sharing.note}" if parts.prefix_sharing.note else ""
    return f"{layout}{packed}{sharing}"


def _steps(parts: RunParts, schedule: Schedule, point: ResumePoint | None) -> str:
    training = parts.config.training
    size: int | str = training.batch_size
    about = ""
    if parts.config.loading.tokens_per_device_batch is not None:
        size, about = f"{parts.config.loading.tokens_per_device_batch:,} tokens", "about "
    factors = f"{size} x {training.gradient_accumulation_steps} accumulated"
    if parts.ranks.world_size > 1:
        factors += f" x {parts.ranks.world_size} processes"
    text = f"{schedule.total_steps:,}, each of {about}{schedule.rows_per_step:,} rows ({factors})"
    if schedule.steps_per_epoch is not None:
        text += f", {schedule.total_steps / schedule.steps_per_epoch:.2f} epochs"
    elif parts.data.stream is not None and (epochs := parts.data.stream.options.epochs) is not None:
        text += f", or fewer: it ends after {epochs} pass{'' if epochs == 1 else 'es'} over the rows"
    return text if point is None else f"{text}; going on after step {point.manifest.step:,}"


def _token_batches(parts: RunParts) -> TokenBatches | None:
    rows = parts.data.train
    return None if rows is None else find_token_batches(parts.config, rows, parts.layout, parts.ranks)


def _name(dtype: torch.dtype) -> str:
    return {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}.get(dtype, str(dtype))
