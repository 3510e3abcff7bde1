import pytest
from transformers import TrainerCallback

from tunesmith.errors import ConfigError
from tunesmith.training.callbacks.custom import load_callbacks


class Mine(TrainerCallback):
    """A user's callback."""


def test_classes_are_found_and_created_in_order():
    name = f"{__name__}:Mine"
    first, second = load_callbacks([name, "transformers:DefaultFlowCallback"])
    assert type(first).__name__ == "Mine"
    assert type(second).__name__ == "DefaultFlowCallback"


def test_a_file_in_the_working_directory_will_do(tmp_path, monkeypatch):
    (tmp_path / "beside_the_config.py").write_text(
        "from transformers import TrainerCallback\nclass Bell(TrainerCallback):\n    pass\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    assert type(load_callbacks(["beside_the_config:Bell"])[0]).__name__ == "Bell"


def test_a_missing_module_is_named():
    with pytest.raises(ConfigError, match="callbacks: there is no module 'nowhere_at_all'"):
        load_callbacks(["nowhere_at_all:Bell"])


@pytest.mark.parametrize(
    ("name", "words"), [("Yours", "names nothing of that name"), ("pytest", "a module, not a callback class")]
)
def test_what_is_no_callback_is_refused_with_what_is_there(name, words):
    with pytest.raises(ConfigError, match=rf"{words}.*the module has: Mine"):
        load_callbacks([f"{__name__}:{name}"])


def test_a_file_with_a_mistake_is_named_with_its_line(tmp_path, monkeypatch):
    (tmp_path / "with_a_mistake.py").write_text("class Bell:\n    def broken(\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"with_a_mistake\.py, line 2"):
        load_callbacks(["with_a_mistake:Bell"])
