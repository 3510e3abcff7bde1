from dataclasses import replace

import pytest

from tests.tiny.runs import tiny_run, write_place
from tunesmith.training.run import prepare_parts


@pytest.fixture(scope="session")
def toy_place(tmp_path_factory):
    """A folder with a toy model and data set."""
    return write_place(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def make_parts(toy_place, tmp_path):
    """Return a function that prepares everything for a toy run with some settings; fields of the parts may be given."""

    def make(changes=None, **settings):
        parts = prepare_parts(tiny_run(toy_place, output_dir=str(tmp_path / "out"), **settings))
        return replace(parts, **(changes or {}))

    return make
