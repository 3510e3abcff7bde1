"""Settings of measuring the model during and after training; a part of the training group."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tunesmith.config.constraints import NonNegativeFloat, PositiveFloat, PositiveInt

METRICS: Mapping[str, str | None] = {
    "loss": None,
    "perplexity": None,
    "accuracy": "compute_accuracy",
    "bleu-4": "predict_with_generate",
    "rouge-1": "predict_with_generate",
    "rouge-2": "predict_with_generate",
    "rouge-l": "predict_with_generate",
}
"""What evaluation measures, with the switch that each needs, if any."""

_OF_REWARDS = ("rewards/accuracies", "rewards/margins", "rewards/chosen", "rewards/rejected")
STAGE_METRICS: Mapping[str, tuple[str, ...]] = {
    "rm": ("loss", "accuracy", "margin"),
    "dpo": ("loss", *_OF_REWARDS),
    "kto": ("loss", "rewards/chosen", "rewards/rejected"),
}
"""What evaluation measures with stages whose loss is of whole completions."""

METRIC_PREFIX = "eval_"
SMALLER_IS_BETTER = ("loss", "perplexity")


@dataclass(frozen=True, kw_only=True)
class EvaluatingSettings:
    """When the model is measured, on what, and what follows from it."""

    per_device_eval_batch_size: PositiveInt = 8
    """Rows of one evaluation batch on each device, and of those in which a reference is computed beforehand.

    Changes speed and memory, not the numbers."""

    eval_strategy: Literal["no", "steps", "epoch"] = "no"
    """When the model is measured during training: never, every `eval_steps`, or after every epoch."""

    eval_steps: PositiveFloat | None = None
    """Optimizer steps between evaluations; a value below 1 is a share of all steps. `logging_steps` when not set."""

    eval_delay: NonNegativeFloat = 0.0
    """Steps (or epochs, with `eval_strategy: epoch`) before the first evaluation."""

    eval_on_start: bool = False
    """Measure before the first step too. Shows what training changed and finds mistakes early."""

    load_best_model_at_end: bool = False
    """Keep the best checkpoint by `metric_for_best_model` as the result. Saving and evaluating have to coincide."""

    metric_for_best_model: str | None = None
    """Number that decides which checkpoint is best; the evaluation loss when not set.

    One of `loss`, `perplexity`, `accuracy` (with `compute_accuracy`), `bleu-4`, `rouge-1`, `rouge-2` and `rouge-l`
    (with `predict_with_generate`), with or without `eval_` in front. With stage `dpo` `loss`, `rewards/accuracies` or
    `rewards/margins`; with `kto` `loss` or `rewards/chosen`.

    Used by `load_best_model_at_end`, `early_stopping_steps`, `save_strategy: best`, `save_total_limit` (the best
    checkpoint stays) and schedules that go by the evaluation."""

    greater_is_better: bool | None = None
    """Whether a larger `metric_for_best_model` is better. When not set: yes, but no for loss and perplexity."""

    early_stopping_steps: PositiveInt | None = None
    """Stop after this many evaluations in a row without an improvement."""

    compute_accuracy: bool = False
    """Report the share of tokens that are predicted exactly, next to the loss."""

    predict_with_generate: bool = False
    """Generate answers in evaluation and prediction and score them with BLEU and ROUGE. Much slower than the loss."""
