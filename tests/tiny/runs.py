"""A toy model, tokenizer and data set on disk, and the configuration of a run over them."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from tests.tiny.models import tiny_model
from tests.tiny.tokenizers import byte_level_tokenizer
from tunesmith.config import RunConfig, load_config
from tunesmith.models.reward import build_reward_model

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{{ '\\n' }}{% else %}{{ message['content'] + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

_QUESTIONS = ("What is {0} + 1?", "Say {0} twice.", "Write a short poem about {0}.", "请说{0}。")
_ANSWERS = ("It is more than {0}.", "{0} {0}", "Roses are red, {0} is blue, and that is all.", "好的，{0}。")


def write_model(folder: Path, family: str = "llama", *, chat_template: str | None = CHATML, **settings: Any) -> Path:
    """Save a toy model with a tokenizer, whose chat template marks answers unless another one is given."""
    return _write_files(folder, _model_files(family, chat_template, json.dumps(settings, sort_keys=True)))


def write_reward_model(folder: Path, chat_template: str | None = CHATML) -> Path:
    """Save a toy model with a score head, and a tokenizer."""
    return _write_files(folder, _reward_model_files(chat_template))


# Building and saving a model takes longer than most of what is tried with it, so each is made once.
@cache
def _model_files(family: str, chat_template: str | None, settings: str) -> dict[str, bytes]:
    with TemporaryDirectory() as folder:
        tiny_model(family, **json.loads(settings)).save_pretrained(folder)
        byte_level_tokenizer(chat_template=chat_template).save_pretrained(folder)
        return _read_files(folder)


@cache
def _reward_model_files(chat_template: str | None) -> dict[str, bytes]:
    tokenizer = byte_level_tokenizer(chat_template=chat_template)
    with TemporaryDirectory() as folder:
        torch.manual_seed(1)
        build_reward_model(tiny_model("llama"), tokenizer).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return _read_files(folder)


def _read_files(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def _write_files(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def write_dataset(folder: Path, num_rows: int = 24) -> Path:
    """Save questions and answers of uneven lengths as the data set `toy`, also as texts, pairs and ratings."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"instruction": _QUESTIONS[n % 4].format(n), "input": "", "output": _ANSWERS[n % 4].format(n) * (1 + n % 3)}
        for n in range(num_rows)
    ]
    texts = [{"text": " ".join(row["output"] for row in rows[n : n + 3])} for n in range(num_rows)]
    (folder / "toy.json").write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    (folder / "texts.json").write_text(json.dumps(texts, ensure_ascii=False), encoding="utf-8")
    pairs = [
        {"instruction": row["instruction"], "chosen": row["output"], "rejected": "I do not know. " * (1 + number % 2)}
        for number, row in enumerate(rows)
    ]
    ratings = [{**row, "label": number % 3 == 0} for number, row in enumerate(rows)]
    (folder / "pairs.json").write_text(json.dumps(pairs, ensure_ascii=False), encoding="utf-8")
    (folder / "ratings.json").write_text(json.dumps(ratings, ensure_ascii=False), encoding="utf-8")
    info = {
        "toy": {"file_name": "toy.json"},
        "pairs": {"file_name": "pairs.json", "ranking": True},
        "ratings": {"file_name": "ratings.json"},
        "texts": {"file_name": "texts.json", "columns": {"prompt": "text"}},
    }
    (folder / "dataset_info.json").write_text(json.dumps(info), encoding="utf-8")
    return folder


def write_place(folder: Path, num_rows: int = 24, **settings: Any) -> Path:
    """Save a toy model and data sets where `tiny_settings` looks for them."""
    write_model(folder / "model", **settings)
    write_dataset(folder / "data", num_rows)
    return folder


def tiny_settings(folder: Path, **settings: Any) -> dict[str, Any]:
    """Return the settings of a short run on the CPU over the toy model and data in `folder`; `None` leaves one out."""
    chosen = {
        "model_name_or_path": str(folder / "model"),
        "dataset": "toy",
        "dataset_dir": str(folder / "data"),
        "dataset_cache_dir": str(folder / "cache"),
        "output_dir": str(folder / "out"),
        "stage": "sft",
        "finetuning_type": "lora",
        "lora_rank": 4,
        "cutoff_len": 128,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "num_train_epochs": 1,
        "logging_steps": 2,
        "use_cpu": True,
        "bf16": False,
        **settings,
    }
    return {key: value for key, value in chosen.items() if value is not None}


def tiny_run(folder: Path, **settings: Any) -> RunConfig:
    """Return the checked configuration of `tiny_settings`."""
    return load_config(tiny_settings(folder, **settings))
