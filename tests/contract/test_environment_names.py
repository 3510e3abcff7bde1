"""Variables that this product reads for itself are no settings of a run."""

import re

import pytest

from tests.house.places import ROOT
from tunesmith.config.environment import RESERVED, read_environment


@pytest.mark.parametrize("file", ["Makefile", "tests/conftest.py"])
def test_variables_of_the_tests_are_reserved(file):
    names = set(re.findall(r"TUNESMITH_[A-Z_]+", (ROOT / file).read_text(encoding="utf-8")))
    assert names
    assert names <= RESERVED
    assert read_environment(dict.fromkeys(names, "1")) == ([], [])
