"""A commented file to start from, for each stage."""

import textwrap
from collections.abc import Mapping

from tunesmith.config.descriptions import all_descriptions, first_sentence
from tunesmith.config.objective import STAGES
from tunesmith.config.suggestions import render_suggestion
from tunesmith.errors import ConfigError

_SHARED: Mapping[str, Mapping[str, str]] = {
    "The model": {"model_name_or_path": "Qwen/Qwen3-0.6B", "flash_attn": "auto"},
    "What is trained": {"stage": "", "finetuning_type": "lora", "lora_rank": "16", "lora_target": "all"},
    "The rows": {},
    "The run": {
        "output_dir": "outputs/first",
        "per_device_train_batch_size": "4",
        "gradient_accumulation_steps": "4",
        "learning_rate": "1.0e-4",
        "num_train_epochs": "3",
        "lr_scheduler_type": "cosine",
        "warmup_ratio": "0.05",
        "seed": "42",
    },
    "What is shown and kept": {
        "logging_steps": "10",
        "save_steps": "500",
        "save_total_limit": "2",
        "plot_loss": "true",
        "report_to": "none",
    },
    "Measuring": {"val_size": "0.05", "eval_strategy": "steps", "eval_steps": "100"},
}
_ROWS: Mapping[str, Mapping[str, str]] = {
    "pt": {"dataset": "my_texts", "dataset_dir": "data", "cutoff_len": "2048", "packing": "true"},
    "sft": {
        "dataset": "my_answers",
        "dataset_dir": "data",
        "template": "auto",
        "cutoff_len": "2048",
    },
    **{
        stage: {"dataset": rows, "dataset_dir": "data", "template": "auto", "cutoff_len": "2048"}
        for stage, rows in {"rm": "my_pairs", "dpo": "my_pairs", "kto": "my_ratings"}.items()
    },
}
_PREFERENCES: Mapping[str, Mapping[str, str]] = {
    "rm": {"center_rewards_coefficient": "0.01"},
    "dpo": {"pref_loss": "sigmoid", "pref_beta": "0.1", "pref_ftx": "0.0"},
    "kto": {"pref_beta": "0.1", "kto_chosen_weight": "auto", "kto_rejected_weight": "auto"},
}
_RATES: Mapping[str, str] = {"rm": "1.0e-5", "dpo": "5.0e-6", "kto": "5.0e-6"}
"""Learning rates of stages that want others: preferences move a model quickly."""

_HEAD = """# A run with `stage: {stage}`. Check: `tunesmith config check FILE`. Start: `tunesmith train FILE`.
# Every key is explained in docs/options.md.
"""


def render_starter(stage: str) -> str:
    """Return the text of a starting file for a stage.

    Raises:
        ConfigError: There is no such stage.
    """
    if stage not in STAGES:
        hint = render_suggestion(stage, STAGES)
        raise ConfigError(f"there is no stage '{stage}' to start with; allowed is {' or '.join(STAGES)}.{hint}")
    paragraphs = [_HEAD.format(stage=stage)]
    for title, values in _SHARED.items():
        lines = [f"### {title}\n"]
        for key, value in _values(stage, title, values).items():
            comment = textwrap.wrap(first_sentence(all_descriptions()[key]), 110)
            lines += [f"# {line}\n" for line in comment]
            lines.append(f"{key}: {value}\n")
        paragraphs.append("".join(lines))
    return "\n".join(paragraphs)


def _values(stage: str, title: str, values: Mapping[str, str]) -> Mapping[str, str]:
    """Return the lines of a paragraph for a stage."""
    if title == "The rows":
        return _ROWS[stage]
    own = {"stage": stage, "learning_rate": _RATES.get(stage, values.get("learning_rate", ""))}
    chosen = {key: own.get(key, value) for key, value in values.items()}
    return {**chosen, **_PREFERENCES.get(stage, {})} if title == "What is trained" else chosen
