"""The plan of a run: what will happen, on one page, before it happens."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from tunesmith.data.pipeline import is_packed
from tunesmith.training.assembly import RunParts
from tunesmith.training.resume import ResumePoint

PLAN_FILE = "plan.txt"


@dataclass(frozen=True, slots=True)
class Schedule:
    """How many steps a run takes."""

    rows_per_step: int
    """Rows (or packs) of one optimiser step, over all processes."""

    steps_per_epoch: int
    total_steps: int


def estimate_schedule(parts: RunParts) -> Schedule:
    """Return the steps of a run from its number of rows and batch sizes."""
    training, ranks = parts.config.training, parts.ranks
    num_rows = 0 if parts.data.train is None else len(parts.data.train)
    batches = num_rows / training.per_device_train_batch_size
    whole = math.floor(batches) // ranks.world_size if parts.config.loading.dataloader_drop_last else None
    per_process = math.ceil(math.ceil(batches) / ranks.world_size) if whole is None else whole
    steps = max(1, math.ceil(per_process / training.gradient_accumulation_steps))
    total = training.max_steps if training.max_steps > 0 else math.ceil(training.num_train_epochs * steps)
    rows = training.per_device_train_batch_size * training.gradient_accumulation_steps * ranks.world_size
    return Schedule(rows, steps, total)


def render_plan(parts: RunParts, point: ResumePoint | None) -> str:
    """Return the plan as text."""
    lines = [f"{name + ':':<11}{text}" for name, text in _lines(parts, point)]
    return "\n".join(["Plan", *(f"  {line}" for line in lines), "Data", parts.data.report.render()])


def _lines(parts: RunParts, point: ResumePoint | None) -> Iterator[tuple[str, str]]:
    config, loaded = parts.config, parts.loaded
    yield "model", f"{config.model.model_name_or_path}, {_tuning(parts)}"
    yield "weights", loaded.parameters.render_line()
    yield "numbers", _precision(parts)
    yield "attention", f"{loaded.attention.implementation} ({loaded.attention.reason})"
    yield "batches", _batches(parts)
    if parts.trains:
        yield "steps", _steps(parts, point)
    if loaded.memory is not None:
        yield "memory", f"about {loaded.memory.total / 1e9:.1f} GB at the longest rows"
    for note in loaded.notes:
        yield "note", note
    yield "output", str(parts.output_dir)


def _tuning(parts: RunParts) -> str:
    adapter = parts.config.adapter
    kind: str = adapter.finetuning_type
    if kind == "lora":
        kind = f"lora rank {adapter.lora_rank} on {','.join(adapter.lora_target)}"
    return f"stage {parts.config.objective.stage}, {kind}"


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
    return f"{layout}{', several samples in each row' if is_packed(parts.config) else ''}"


def _steps(parts: RunParts, point: ResumePoint | None) -> str:
    training, schedule = parts.config.training, estimate_schedule(parts)
    factors = f"{training.per_device_train_batch_size} x {training.gradient_accumulation_steps} accumulated"
    if parts.ranks.world_size > 1:
        factors += f" x {parts.ranks.world_size} processes"
    text = (
        f"{schedule.total_steps:,} of {schedule.rows_per_step:,} rows ({factors}), "
        f"{schedule.total_steps / schedule.steps_per_epoch:.2f} epochs"
    )
    return text if point is None else f"{text}; going on after step {point.manifest.step:,}"


def _name(dtype: torch.dtype) -> str:
    return {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}.get(dtype, str(dtype))
