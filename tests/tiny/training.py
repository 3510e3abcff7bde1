"""Small runs of the trainer on toy models, without files or configuration."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.tiny.models import tiny_model
from tunesmith.data.batches import Example
from tunesmith.data.collators import build_collator
from tunesmith.data.loading.samplers import RandomSampler, SequentialSampler
from tunesmith.models.heads import resolve_head
from tunesmith.objectives.base import Objective
from tunesmith.objectives.next_token import NextTokenObjective
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.arguments import OneDeviceArguments
from tunesmith.training.callbacks.interruption import Interruption
from tunesmith.training.checkpoints import RowOrder
from tunesmith.training.trainer import ObjectiveTrainer
from tunesmith.training.trainer_plan import TrainerPlan


def uneven_rows(num_rows: int, *, seed: int = 0, vocab_size: int = 420) -> list[Example]:
    """Rows of 4 to 20 tokens of which the last 1 to 15 are trained: every mean of means is wrong for them."""
    rng = np.random.default_rng(seed)
    rows: list[Example] = []
    for row in range(num_rows):
        length = int(rng.integers(4, 21))
        first = int(rng.integers(1, length))
        ids = rng.integers(3, vocab_size, length).astype(np.int32)
        rows.append(Example(input_ids=ids, trained_spans=np.array([first, length], dtype=np.int32), row_id=row))
    return rows


def tiny_trainer(
    output_dir: Path,
    rows: Sequence[Any],
    *,
    model: nn.Module | None = None,
    layout: str = "padded",
    shuffle: bool = False,
    ranks: Ranks | None = None,
    evals: Any = None,
    callbacks: Sequence[Any] = (),
    plan: dict[str, Any] | None = None,
    collator: Any = None,
    objective: Objective | None = None,
    **settings: Any,
) -> ObjectiveTrainer:
    """Build a trainer on the CPU: plain SGD without clipping unless settings say otherwise."""
    ranks = ranks or Ranks()
    model = tiny_model("llama") if model is None else model
    defaults: dict[str, Any] = {
        "optim": "sgd",
        "learning_rate": 0.5,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "per_device_train_batch_size": 2,
        "num_train_epochs": 1,
        "save_strategy": "no",
        "logging_steps": 1,
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "logging_nan_inf_filter": False,
        "remove_unused_columns": False,
        "restore_callback_states_from_checkpoint": True,
    }
    args = OneDeviceArguments(output_dir=str(output_dir), **{**defaults, **settings})
    sampler = RandomSampler(len(rows), seed=7) if shuffle else SequentialSampler(len(rows))
    order = RowOrder(
        num_rows=len(rows),
        per_device_train_batch_size=args.per_device_train_batch_size,
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        num_processes=ranks.world_size,
        seed=7,
        strategy="random" if shuffle else "sequential",
        drop_last=False,
    )
    return ObjectiveTrainer(
        model=model,
        args=args,
        objective=objective or NextTokenObjective(resolve_head(model), chunk_tokens=8),
        plan=TrainerPlan(run_id="tiny", order=order, sampler=sampler, **(plan or {})),
        ranks=ranks,
        train_dataset=list(rows),
        eval_dataset=evals,
        data_collator=collator or build_collator(layout, pad_token_id=417),
        callbacks=list(callbacks),
    )


class StopAfter(Interruption):
    """Interrupts a run after a step, as a signal would."""

    def __init__(self, step: int) -> None:
        super().__init__(agree=lambda asked: asked)
        self.stop_step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.stop_step:
            self.request()
        super().on_step_end(args, state, control, **kwargs)


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """Copy all trained weights."""
    return {name: value.detach().clone() for name, value in model.named_parameters() if value.requires_grad}


def largest_difference(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> float:
    """Return the largest absolute difference between two sets of weights."""
    assert first.keys() == second.keys()
    return max((first[name] - second[name]).abs().max().item() for name in first)
