"""A folder with what a run asks for: something that passes for a model, and a catalogue of data sets."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tunesmith.config import RunConfig, load_config
from tunesmith.config.machine import Machine
from tunesmith.errors import ConfigError

CPU = Machine("none", "no GPU was found on this machine")
GPU = Machine("nvidia", "its device files are there")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "data").mkdir()
    catalogue = {name: {"file_name": f"{name}.json"} for name in ("alpaca_en", "alpaca_zh", "identity")}
    (tmp_path / "data" / "dataset_info.json").write_text(json.dumps(catalogue))
    for entry in catalogue.values():
        (tmp_path / "data" / entry["file_name"]).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


RUN = {"model_name_or_path": "./model", "dataset": "identity", "output_dir": "out"}


@pytest.fixture
def load(folder: Path) -> Callable[..., RunConfig]:
    """Load a complete run with some settings changed, on a machine without a GPU."""

    def load_run(**changes: object) -> RunConfig:
        return load_config(RUN | changes, environ={}, machine=CPU)

    return load_run


@pytest.fixture
def problems(folder: Path) -> Callable[..., list[str]]:
    """Return the problems of a complete run with some settings changed, on a machine without a GPU."""

    def find(
        *, machine: Machine = CPU, purpose: str = "auto", without: tuple[str, ...] = (), **changes: object
    ) -> list[str]:
        values = {key: value for key, value in (RUN | changes).items() if key not in without}
        try:
            load_config(values, environ={}, machine=machine, purpose=purpose)
        except ConfigError as error:
            return [str(problem) for problem in error.problems]
        return []

    return find
