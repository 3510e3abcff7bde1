"""Prepared data of small runs on disk, for the tests of this package."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from tests.tiny.tokenizers import byte_level_tokenizer
from tunesmith.config import RunConfig, load_config
from tunesmith.data import PreparedData
from tunesmith.data.chat import ChatTemplate, resolve_template
from tunesmith.data.pipeline import prepare_data
from tunesmith.data.preparation import Preparation
from tunesmith.runtime.ranks import Ranks


@dataclass
class SmallRun:
    """Settings over data sets in a folder, and what is made of them."""

    config: RunConfig
    tokenizer: PreTrainedTokenizerBase
    template: ChatTemplate | None

    @property
    def preparation(self) -> Preparation:
        """What encodes the data sets."""
        return Preparation(self.config, self.tokenizer, self.template, Ranks())

    def prepare(self) -> PreparedData:
        """Encode everything."""
        return prepare_data(self.config, self.tokenizer, self.template)


def write_sets(folder: Path, sets: dict[str, list[dict[str, Any]]], **entry: Any) -> None:
    """Write data sets as JSON Lines, with a catalogue; `entry` goes to each of them."""
    catalog = {}
    for name, rows in sets.items():
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
        catalog[name] = {"file_name": f"{name}.jsonl", **entry}
    (folder / "dataset_info.json").write_text(json.dumps(catalog))


def small_run(folder: Path, dataset: str, *, stage: str = "sft", **settings: Any) -> SmallRun:
    """Read the settings of a run over data sets of a folder."""
    chosen = {
        "model_name_or_path": "some/model",
        "stage": stage,
        "dataset": dataset,
        "dataset_dir": str(folder),
        "dataset_cache_dir": str(folder / "cache"),
        "output_dir": str(folder / "out"),
        "max_steps": 1,
        **({"template": "chatml"} if stage == "sft" else {}),
        **settings,
    }
    config = load_config({key: value for key, value in chosen.items() if value is not None}, environ={})
    tokenizer = byte_level_tokenizer(extra_specials=("<tool>",))
    return SmallRun(config, tokenizer, None if stage == "pt" else resolve_template(config.data, tokenizer))


def question(number: int, answer: str | None = None) -> dict[str, str]:
    """Return a row of the alpaca format."""
    return {"instruction": f"What is {number}?", "input": "", "output": f"{number}!" if answer is None else answer}
