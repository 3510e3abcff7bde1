"""Settings and toy models on disk."""

from pathlib import Path

import pytest

from tests.tiny.runs import write_model
from tests.unit.models.gguf_files import write_gguf as write_gguf  # noqa: PLC0414 - a fixture
from tunesmith.config import RunConfig, load_config


@pytest.fixture
def run_config(tmp_path):
    """Build the configuration of an SFT run from a few settings."""

    def build(**settings: object) -> RunConfig:
        flat = {
            "stage": "sft",
            "model_name_or_path": "org/toy",
            "dataset": "rows",
            "dataset_info": {"rows": {"file_name": "rows.json"}},
            "output_dir": str(tmp_path / "out"),
            "cutoff_len": 64,
            "per_device_train_batch_size": 2,
            "use_cpu": True,
            **settings,
        }
        (tmp_path / "rows.json").write_text("[]", encoding="utf-8")
        flat.setdefault("dataset_dir", str(tmp_path))
        return load_config(flat)

    return build


@pytest.fixture
def model_folder(tmp_path) -> Path:
    """A toy Llama with its tokenizer, saved the way Hugging Face saves models."""
    return write_model(tmp_path / "toy-llama", chat_template="{{ messages }}")
