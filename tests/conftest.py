"""Settings of every test: one thread, no network, no colour, no time lost."""

import gc
import logging
import os
import random
import sys
from collections.abc import Generator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import pytest

# What this process compiles, those that tests start do not compile again.
sys.dont_write_bytecode = False

_REGISTRIES = ("adapters", "formats", "pre_tokenizers", "quantized", "templates")
_UNCOUNTED = tuple(
    str(Path(__file__).parent / name)
    for name in ("equivalence", "recipes", *(f"contract/test_{registry}" for registry in _REGISTRIES))
)

_load = SourceFileLoader.exec_module
_counter_while_collecting: Any = None


def _load_counting_ours(loader: SourceFileLoader, module: ModuleType) -> None:
    """Count the lines of modules of ours alone: following others, torch and all, takes longer than loading them."""
    before = sys.gettrace()
    sys.settrace((before or _counter_while_collecting) if module.__name__.partition(".")[0] == "tunesmith" else None)
    try:
        _load(loader, module)
    finally:
        sys.settrace(before)


SourceFileLoader.exec_module = _load_counting_ours  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Count nothing while tests are found and rewritten, but what modules of ours do as they are loaded.

    Nor is there garbage worth looking for meanwhile.
    """
    global _counter_while_collecting  # noqa: PLW0603 - there is one collection in a process
    _counter_while_collecting = sys.gettrace()
    sys.settrace(None)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        sys.settrace(_counter_while_collecting)
        _counter_while_collecting = None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Count no lines of whole runs, nor of a registry that is gone through, and take back what was chosen to be logged.

    Following every line of theirs takes as long again as running them, and tests of the modules meet the same lines.
    Commands that run in the process of a test, or of its fixtures, say what is logged and where.
    """
    root, ours = logging.getLogger(), logging.getLogger("tunesmith")
    handlers, level = list(root.handlers), ours.level
    is_counted = not str(item.path).startswith(_UNCOUNTED)
    counter = sys.gettrace()
    if not is_counted:
        sys.settrace(None)
    try:
        return (yield)
    finally:
        # Only what was taken away: a test marked `no_cover` leaves another counter behind than the one it found.
        if not is_counted:
            sys.settrace(counter)
        ours.setLevel(level)
        for handler in [handler for handler in root.handlers if handler not in handlers]:
            root.removeHandler(handler)


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
