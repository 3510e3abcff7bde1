"""Typed values to group dataclasses, with the values that follow from others."""

from collections.abc import Callable, Iterator, Mapping

from tunesmith.config.evaluating import METRIC_PREFIX, SMALLER_IS_BETTER
from tunesmith.config.objective import STAGES
from tunesmith.config.run_config import Origin, RunConfig
from tunesmith.config.settings import GROUPS, all_settings
from tunesmith.config.settle import Settled

_SYNONYMS: tuple[tuple[str, str, object], ...] = (
    ("disable_gradient_checkpointing", "gradient_checkpointing", False),
    ("disable_shuffling", "train_sampling_strategy", "sequential"),
    ("group_by_length", "train_sampling_strategy", "group_by_length"),
    ("neat_packing", "packing", True),
    ("pissa_init", "init_lora_weights", "pissa"),
)
"""A switch that is on, the setting it is another name for, and the value it gives that one."""

_BY_BEST_METRIC: Mapping[str, tuple[object, ...]] = {
    "load_best_model_at_end": (True,),
    "save_strategy": ("best",),
    "lr_scheduler_type": ("reduce_lr_on_plateau", "greedy"),
}
"""Settings with the values that make a run go by its best evaluation, which is that of the loss if nothing else."""


def build_run_config(settled: Settled, implied_stage: tuple[str, Origin]) -> RunConfig:
    """Build the configuration from typed values; the rest is at its defaults or follows from what is set.

    Args:
        settled: Typed values by key.
        implied_stage: Stage of the file's only section and the reason, for files that name no stage.
    """
    values, origins = dict(settled.values), dict(settled.origins)
    stage, origin = implied_stage
    if "stage" not in values and stage in STAGES:
        values["stage"], origins["stage"] = stage, origin
    for key, value, reason in _implied_values(values):
        if values.get(key) is None:  # null says no more than leaving it out
            values[key], origins[key] = value, Origin("implied", reason)
    groups = {
        group: cls(**{key: values[key] for key in _keys(group) if key in values}) for group, cls in GROUPS.items()
    }
    make: Callable[..., RunConfig] = RunConfig
    return make(**groups, origins=origins)


def _implied_values(values: Mapping[str, object]) -> Iterator[tuple[str, object, str]]:
    for switch, key, value in _SYNONYMS:
        if values.get(switch):
            yield key, value, f"{switch} is true"
    if values.get("dataset") and not values.get("do_eval") and not values.get("do_predict"):
        yield "do_train", True, "dataset is set"
    if values.get("eval_strategy", "no") != "no":
        yield "do_eval", True, "eval_strategy is set"
    for key, wanted in _BY_BEST_METRIC.items():
        if values.get(key) in wanted:
            yield "metric_for_best_model", "loss", f"{key} goes by it"
    if values.get("early_stopping_steps") is not None:
        yield "metric_for_best_model", "loss", "early_stopping_steps goes by it"
    if str(values.get("metric_for_best_model")).removeprefix(METRIC_PREFIX) in SMALLER_IS_BETTER:
        yield "greater_is_better", False, f"metric_for_best_model is {values['metric_for_best_model']}"


def _keys(group: str) -> list[str]:
    return [key for key, setting in all_settings().items() if setting.group == group]
