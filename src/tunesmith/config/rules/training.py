"""Rules about a run: its length, steps, precision, evaluation and saving."""

from collections.abc import Iterator

from tunesmith.config.evaluating import METRIC_PREFIX, METRICS, SMALLER_IS_BETTER, STAGE_METRICS
from tunesmith.config.rules.registry import Finding, Question, rule
from tunesmith.config.suggestions import render_suggestion

_STEP_SETTINGS = ("logging_steps", "save_steps", "eval_steps")

SCHEDULE_DETAILS = {
    "linear": (),
    "cosine": ("num_cycles",),
    "cosine_with_restarts": ("num_cycles",),
    "polynomial": ("lr_end", "power"),
    "constant": (),
    "constant_with_warmup": (),
    "inverse_sqrt": ("timescale",),
    "reduce_lr_on_plateau": ("mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps"),
    "cosine_with_min_lr": ("num_cycles", "min_lr", "min_lr_rate"),
    "cosine_warmup_with_min_lr": ("num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"),
    "warmup_stable_decay": (
        "num_decay_steps",
        "num_stable_steps",
        "warmup_type",
        "decay_type",
        "min_lr_ratio",
        "num_cycles",
    ),
    "greedy": ("mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "warmup", "min_lr", "max_lr",
               "eps", "verbose", "smooth", "window_size", "reset_start"),
}  # fmt: skip
"""What `lr_scheduler_kwargs` may hold for each schedule of transformers."""


@rule()
def one_half_precision(question: Question) -> Iterator[Finding]:
    """A run computes in one number type."""
    training = question.config.training
    if training.bf16 and training.fp16:
        yield Finding(("fp16", "bf16"), "`fp16: true` and `bf16: true` exclude each other; keep one of them.")
    for key in ("fp16", "bf16"):
        if training.pure_bf16 and question.config.value(key) is (key == "fp16"):
            yield Finding(("pure_bf16", key), f"`pure_bf16: true` contradicts {question.cite(key)}; keep one of them.")


@rule()
def warm_up_is_said_once(question: Question) -> Iterator[Finding]:
    """Warm-up is a number of steps or a share; 0 of one leaves it to the other."""
    training = question.config.training
    if training.warmup_ratio and training.warmup_steps:
        yield Finding(
            ("warmup_ratio", "warmup_steps"),
            f"{question.cite('warmup_ratio')} and {question.cite('warmup_steps')} both set the warm-up; "
            "keep one of them.",
        )
    if training.warmup_steps > 1 and training.warmup_steps != int(training.warmup_steps):
        yield Finding(("warmup_steps",), _whole("warmup_steps", training.warmup_steps))


@rule()
def steps_are_whole(question: Question) -> Iterator[Finding]:
    """A number of steps above 1 has no fraction."""
    for key in _STEP_SETTINGS:
        value = question.config.value(key)
        if isinstance(value, float) and value > 1 and value != int(value):
            yield Finding((key,), _whole(key, value))


def _whole(key: str, value: float) -> str:
    return f"`{key}` is {value:g}; allowed is a whole number of steps, or a share of all steps below 1."


@rule()
def length_is_positive(question: Question) -> Iterator[Finding]:
    """Zero steps train nothing."""
    if question.config.training.max_steps == 0:
        yield Finding(("max_steps",), "`max_steps` is 0; allowed is 1 or more, or -1 to go by `num_train_epochs`.")


@rule()
def evaluation_steps_need_a_strategy(question: Question) -> Iterator[Finding]:
    """Steps between evaluations mean nothing when there are none."""
    training = question.config.training
    if training.eval_strategy == "no":
        for key in ("eval_steps", "eval_delay"):
            if question.is_set(key) and question.config.value(key):
                yield Finding(
                    (key, "eval_strategy"),
                    f"{question.cite(key)} has no effect with `eval_strategy: no`; set `eval_strategy: steps` or "
                    "remove it.",
                )
    elif training.eval_strategy == "epoch" and question.is_set("eval_steps") and training.eval_steps is not None:
        yield Finding(
            ("eval_steps", "eval_strategy"),
            f"{question.cite('eval_steps')} has no effect with `eval_strategy: epoch`; keep one of them.",
        )


@rule()
def measuring_needs_evaluation(question: Question) -> Iterator[Finding]:
    """What goes by the evaluation needs one."""
    training = question.config.training
    if training.eval_strategy != "no":
        return
    asking: list[str] = []
    asking += ["load_best_model_at_end"] if training.load_best_model_at_end else []
    asking += ["early_stopping_steps"] if training.early_stopping_steps is not None else []
    asking += ["save_strategy"] if training.save_strategy == "best" else []
    asking += ["lr_scheduler_type"] if training.lr_scheduler_type in ("reduce_lr_on_plateau", "greedy") else []
    for key in asking:
        yield Finding(
            (key, "eval_strategy"),
            f"{question.cite(key)} goes by the evaluation during training, and `eval_strategy` is no; "
            "set it to steps or epoch.",
        )


@rule()
def best_checkpoint_is_evaluated(question: Question) -> Iterator[Finding]:
    """The best checkpoint can be loaded only if each checkpoint was measured."""
    training = question.config.training
    if not training.load_best_model_at_end or training.eval_strategy == "no" or training.save_strategy == "best":
        return
    if training.eval_strategy != training.save_strategy:
        yield Finding(
            ("load_best_model_at_end", "eval_strategy", "save_strategy"),
            f"`load_best_model_at_end: true` needs each checkpoint measured, but {question.cite('eval_strategy')} "
            f"and {question.cite('save_strategy')} differ; set both to the same.",
        )
        return
    every = training.logging_steps if training.eval_steps is None else training.eval_steps
    if training.eval_strategy == "steps" and not _is_multiple(training.save_steps, every):
        yield Finding(
            ("load_best_model_at_end", "save_steps", "eval_steps"),
            f"`load_best_model_at_end: true` needs `save_steps` to be a multiple of `eval_steps`; they are "
            f"{training.save_steps:g} and {every:g}.",
        )


def _is_multiple(save_steps: float, eval_steps: float) -> bool:
    """Return whether every save falls on an evaluation; shares and counts of steps cannot be compared."""
    if (save_steps < 1) != (eval_steps < 1):
        return False
    parts = 1_000_000  # compare shares as whole numbers, as their quotient is rarely exact
    return round(save_steps * parts) % max(1, round(eval_steps * parts)) == 0


@rule()
def best_metric_is_measured(question: Question) -> Iterator[Finding]:
    """A checkpoint can be the best only by a number that the run measures."""
    training = question.config.training
    metric = training.metric_for_best_model
    if metric is None or training.eval_strategy == "no":
        return
    name, stage = metric.removeprefix(METRIC_PREFIX), question.config.objective.stage
    measured = list(STAGE_METRICS.get(stage, ())) or [
        known for known, switch in METRICS.items() if switch is None or question.config.value(switch)
    ]
    if name in measured:
        return
    switch = None if stage in STAGE_METRICS else METRICS.get(name)
    hint = f" Set `{switch}: true` to measure it." if switch else render_suggestion(name, measured)
    yield Finding(
        ("metric_for_best_model",),
        f"`metric_for_best_model` is {metric}, which this run does not measure; allowed is one of "
        f"{', '.join(measured)}, with or without `{METRIC_PREFIX}` in front.{hint}",
    )


@rule()
def best_loss_is_the_smallest(question: Question) -> Iterator[Finding]:
    """The best loss is the smallest, and so is the best perplexity, which follows from it."""
    training = question.config.training
    metric = (training.metric_for_best_model or "loss").removeprefix(METRIC_PREFIX)
    if training.greater_is_better and metric in SMALLER_IS_BETTER:
        yield Finding(
            ("greater_is_better", "metric_for_best_model"),
            f"`greater_is_better: true` with the evaluation {metric} would keep the worst model; name another metric "
            "in `metric_for_best_model`.",
        )


@rule()
def prediction_needs_generation(question: Question) -> Iterator[Finding]:
    """Predictions are generated answers, so they need conversations and generation."""
    training, stage = question.config.training, question.config.objective.stage
    if training.predict_with_generate and stage != "sft":
        yield Finding(
            ("predict_with_generate", "stage"),
            f"`predict_with_generate: true` compares generated answers with given ones, which {question.cite('stage')} "
            "does not have; remove it or use `stage: sft`.",
        )
    if training.do_predict and not training.predict_with_generate:
        yield Finding(
            ("do_predict",),
            "`do_predict: true` writes generated answers; set `predict_with_generate: true` too.",
        )
    if training.predict_with_generate and training.compute_accuracy:
        yield Finding(
            ("compute_accuracy", "predict_with_generate"),
            "`compute_accuracy: true` needs the scores of given answers and `predict_with_generate: true` generates "
            "its own; keep one of them.",
        )


@rule()
def evaluation_has_rows(question: Question) -> Iterator[Finding]:
    """Measuring needs rows that are not trained on."""
    training, data = question.config.training, question.config.data
    if data.eval_dataset or data.val_size:
        return
    for key in ("eval_strategy", "do_eval", "do_predict", "predict_with_generate", "eval_on_start"):
        if question.is_set(key) and question.config.value(key) not in ("no", False):
            yield Finding(
                (key,),
                f"{question.cite(key)} needs rows to evaluate on; set `val_size` or `eval_dataset`.",
            )
            return
    if training.compute_accuracy:
        yield Finding(
            ("compute_accuracy",),
            "`compute_accuracy: true` is measured in evaluation; set `val_size` or `eval_dataset`.",
        )


@rule()
def schedule_knows_its_details(question: Question) -> Iterator[Finding]:
    """Each schedule takes details of its own."""
    training = question.config.training
    details, schedule = training.lr_scheduler_kwargs or {}, training.lr_scheduler_type
    known = SCHEDULE_DETAILS[schedule]
    unknown = [name for name in details if name not in known]
    if unknown:
        allowed = f"it takes {', '.join(known)}" if known else "it takes none"
        yield Finding(
            ("lr_scheduler_kwargs", "lr_scheduler_type"),
            f"`lr_scheduler_kwargs` has {', '.join(unknown)}, which `{schedule}` does not know; {allowed}.",
        )
    needs_minimum = schedule in ("cosine_with_min_lr", "cosine_warmup_with_min_lr")
    if needs_minimum and ("min_lr" in details) == ("min_lr_rate" in details):
        yield Finding(
            ("lr_scheduler_type", "lr_scheduler_kwargs"),
            f"`lr_scheduler_type: {schedule}` needs one of min_lr and min_lr_rate in `lr_scheduler_kwargs`.",
        )
    if schedule == "warmup_stable_decay" and "num_decay_steps" not in details:
        yield Finding(
            ("lr_scheduler_type", "lr_scheduler_kwargs"),
            "`lr_scheduler_type: warmup_stable_decay` needs num_decay_steps in `lr_scheduler_kwargs`.",
        )


@rule()
def samples_need_steps(question: Question) -> Iterator[Finding]:
    """Questions are asked only every `sample_steps`."""
    training = question.config.training
    if training.sample_prompts and training.sample_steps is None:
        yield Finding(("sample_prompts",), "`sample_prompts` has no effect without `sample_steps`; set it too.")


@rule()
def trackers_exclude_none(question: Question) -> Iterator[Finding]:
    """No tracker, or all of them, leaves no room for others."""
    trackers = question.config.training.report_to
    if len(trackers) > 1 and {"none", "all"} & set(trackers):
        yield Finding(("report_to",), f"{question.cite('report_to')} mixes none or all with names; keep one kind.")


@rule()
def callbacks_name_a_class(question: Question) -> Iterator[Finding]:
    """A callback is found by module and class."""
    for name in question.config.training.callbacks:
        module, colon, cls = name.partition(":")
        if not (colon and cls.isidentifier() and all(part.isidentifier() for part in module.split("."))):
            yield Finding(("callbacks",), f"`callbacks` has '{name}'; allowed is package.module:Class.")


@rule()
def compile_details_need_compiling(question: Question) -> Iterator[Finding]:
    """Transformers would start compiling because of a detail; here the switch decides."""
    if question.config.training.torch_compile:
        return
    for key in ("torch_compile_backend", "torch_compile_mode"):
        if question.config.value(key) is not None:
            yield Finding((key,), f"{question.cite(key)} has no effect without `torch_compile: true`; set it too.")
