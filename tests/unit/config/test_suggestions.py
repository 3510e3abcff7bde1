from pathlib import Path

import pytest

from tunesmith.config import suggestions
from tunesmith.config.settings import all_settings
from tunesmith.config.suggestions import find_nearest, find_similar_path, render_similar_path, render_suggestion


def test_a_slip_of_the_finger_finds_its_key():
    assert find_nearest("learning_rat", all_settings()) == ["learning_rate"]
    assert find_nearest("Cutoff-Len", all_settings()) == ["cutoff_len"]


def test_the_same_words_in_another_order_are_near():
    assert find_nearest("batch_size_train_per_device", all_settings()) == ["per_device_train_batch_size"]


def test_the_first_words_of_a_name_stand_for_it():
    assert find_nearest("adamw", ["grokadamw", "adamw_torch_fused", "adamw_torch"]) == ["adamw_torch"]


def test_nothing_is_near_to_noise():
    assert find_nearest("zzzzzz", all_settings()) == []
    assert render_suggestion("zzzzzz", all_settings()) == ""


def test_several_suggestions_are_joined():
    assert render_suggestion("alpaca", ["alpaca_en", "alpaca_zh"], count=2) in (
        " Did you mean `alpaca_zh` or `alpaca_en`?",
        " Did you mean `alpaca_en` or `alpaca_zh`?",
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with a model in a folder of models."""
    (tmp_path / "Models" / "Qwen3-0.6B").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "written", ["models/qwen3-0.6b", "./models/Qwen3-0.6B", "Models/Qwen3-06B", "x/../models/QWEN3-0.6B"]
)
def test_a_path_with_other_capitals_or_a_slip_finds_what_is_there(folder, written):
    (folder / "x").mkdir()
    assert find_similar_path(written).resolve() == folder / "Models" / "Qwen3-0.6B"
    assert find_similar_path(folder / written).resolve() == folder / "Models" / "Qwen3-0.6B"


def test_a_path_is_suggested_as_it_was_written(folder):
    assert render_similar_path("models/Qwen3-0.6B") == f" Did you mean '{Path('Models/Qwen3-0.6B')}'?"


def test_two_ways_to_write_an_accent_are_one_name(folder):
    (folder / "Mode\u0300les").mkdir()
    assert find_similar_path("mod\u00e8les") == Path("Mode\u0300les")


@pytest.mark.parametrize("written", ["zzz", "Models/llama", "Models/Qwen3-0.6B/config.json/x", "/zzz/models"])
def test_a_path_like_no_other_has_no_suggestion(folder, written):
    assert find_similar_path(written) is None
    assert render_similar_path(written) == ""


def test_in_a_folder_of_very_many_files_capitals_alone_are_looked_at(folder, monkeypatch):
    monkeypatch.setattr(suggestions, "_MOST_COMPARED", 0)
    assert find_similar_path("models") == Path("Models")
    assert find_similar_path("model") is None
