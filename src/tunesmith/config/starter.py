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
}

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
        for key, value in (_ROWS[stage] if title == "The rows" else values).items():
            comment = textwrap.wrap(first_sentence(all_descriptions()[key]), 110)
            lines += [f"# {line}\n" for line in comment]
            lines.append(f"{key}: {stage if key == 'stage' else value}\n")
        paragraphs.append("".join(lines))
    return "\n".join(paragraphs)
