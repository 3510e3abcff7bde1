"""Settings of every test: one thread, no network, no colour."""

import os
import random

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest


@pytest.fixture
def assets() -> "os.PathLike[str]":
    """Folder of real tokenizers, data and parity fixtures; the test is skipped where TUNESMITH_ASSETS is not set."""
    from pathlib import Path

    place = os.environ.get("TUNESMITH_ASSETS")
    if not place:
        pytest.skip("TUNESMITH_ASSETS is not set: it names the folder with real tokenizers, data and parity fixtures")
    return Path(place).resolve()


@pytest.fixture(autouse=True)
def _fixed_random_state() -> None:
    random.seed(0)
