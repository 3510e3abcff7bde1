"""Settings of every test: one thread, no network, no colour, no time lost."""

import gc
import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest

_COMPARED = ("equivalence", "recipes")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Count no lines while whole runs are compared: following every line of theirs would take half as long again."""
    folders = tuple(str(Path(__file__).parent / name) + os.sep for name in _COMPARED)
    for item in items:
        if str(item.path).startswith(folders):
            item.add_marker("no_cover")


def pytest_collection_finish() -> None:
    """Spare the libraries, which are loaded by now, all later collections of garbage: a fifth of the time of a test."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session")
def assets() -> Path:
    """Folder of real tokenizers, data and parity fixtures; the test is skipped where TUNESMITH_ASSETS is not set."""
    place = os.environ.get("TUNESMITH_ASSETS")
    if not place:
        pytest.skip("TUNESMITH_ASSETS is not set: it names the folder with real tokenizers, data and parity fixtures")
    return Path(place).resolve()


@pytest.fixture(scope="session")
def smollm2_file() -> Path:
    """GGUF file of SmolLM2-135M-Instruct, as TUNESMITH_MODEL_FILE names it.

    Without the variable the test is skipped; with TUNESMITH_REQUIRE_MODEL=1, which `make test-slow` sets, it fails, so
    that tests with a real model cannot pass by not running. A name that leads nowhere fails in any case.
    """
    place = os.environ.get("TUNESMITH_MODEL_FILE")
    if not place:
        reason = "TUNESMITH_MODEL_FILE is not set: it names a GGUF file of SmolLM2-135M-Instruct"
        if os.environ.get("TUNESMITH_REQUIRE_MODEL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    path = Path(place).resolve()
    if not path.is_file():
        pytest.fail(f"TUNESMITH_MODEL_FILE is {place}, where there is no file")
    return path


@pytest.fixture(autouse=True)
def _fixed_random_state() -> None:
    random.seed(0)


@pytest.fixture
def uncompiled_flex(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flex attention without its kernel: plain operations, which have a gradient on a CPU where nobody forbids it."""
    from torch.nn.attention import flex_attention as torch_flex
    from transformers.integrations import flex_attention as transformers_flex

    def run(query: Any, key: Any, value: Any, training: bool = False, **options: Any) -> Any:
        return torch_flex.flex_attention(query, key, value, **options)

    monkeypatch.setattr(transformers_flex, "compile_friendly_flex_attention", run)
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *tensors: None)


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """Take back what a command that ran in the test's process chose to log, and where."""
    root, ours = logging.getLogger(), logging.getLogger("tunesmith")
    handlers, level = list(root.handlers), ours.level
    yield
    ours.setLevel(level)
    for handler in [handler for handler in root.handlers if handler not in handlers]:
        root.removeHandler(handler)
