"""The real model, ready to use."""

import pytest

from tunesmith.cli.main import main


@pytest.fixture(scope="session")
def smollm2(smollm2_file, tmp_path_factory):
    """The folder of the real model, converted from its GGUF file as `make quickstart` does."""
    folder = tmp_path_factory.mktemp("model") / "smollm2"
    assert main(["export", str(smollm2_file), str(folder), "infer_dtype=bfloat16"]) == 0
    return folder
