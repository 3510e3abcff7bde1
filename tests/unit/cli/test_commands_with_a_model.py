"""Chat, export and quickstart from end to end, on a toy model, in this process."""

import io
import json
import sys

import pytest

from tests.unit.cli.toy import save_toy_model
from tunesmith.cli.commands.quickstart import QUESTIONS
from tunesmith.cli.main import main

SHORT = ["do_sample=false", "max_new_tokens=4", "use_cpu=true"]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return save_toy_model(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def trained(toy, tmp_path_factory):
    """Run the quickstart for a few steps; return its folder and what it printed."""
    folder = tmp_path_factory.mktemp("quickstart")
    shown = io.StringIO()
    out = folder / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "stdout", shown)
        words = [f"model_name_or_path={toy}", f"output_dir={out}", "max_steps=3", "use_cpu=true"]
        assert main(["quickstart", *words]) == 0
    return out, shown.getvalue()


@pytest.fixture
def ask(monkeypatch, capsys):
    def run(words, text):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert main(words) == 0
        return capsys.readouterr().out

    return run


def test_the_quickstart_shows_the_same_questions_before_and_after(trained):
    out, shown = trained
    for question in QUESTIONS:
        assert shown.count(f"  question: {question}\n  before: ") == 1
    assert shown.count("  after: ") == len(QUESTIONS)
    assert f"tunesmith chat {out}" in shown


def test_the_quickstart_without_its_model_says_how_to_get_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["quickstart"]) == 2
    error = capsys.readouterr().err
    assert "model_name_or_path" in error
    assert "`make quickstart` in a checkout fetches the recipe's model first" in error


def test_the_quickstart_with_a_model_that_is_not_there_says_only_that(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["quickstart", "model_name_or_path=./none"]) == 2
    assert "make quickstart" not in capsys.readouterr().err


def test_chat_answers_from_a_pipe(ask, toy):
    shown = ask(["chat", str(toy), *SHORT], "Hi\n\nAgain\n")
    assert len(shown.splitlines()) >= 2


def test_chat_with_an_adapter_folder_alone_loads_its_model_too(ask, toy, trained):
    out, _ = trained
    both = ask(["chat", str(toy), "--adapter", str(out), *SHORT], "Who are you?\n")
    alone = ask(["chat", str(out), *SHORT], "Who are you?\n")
    assert alone == both


def test_chat_reads_a_configuration_file(ask, toy, tmp_path):
    file = tmp_path / "chat.yaml"
    file.write_text(json.dumps({"model_name_or_path": str(toy), "do_sample": False, "max_new_tokens": 4}))
    assert ask(["chat", str(file)], "Hi\n") == ask(["chat", str(toy), *SHORT], "Hi\n")


def test_export_says_what_was_written_and_checked(toy, trained, tmp_path, capsys):
    out, _ = trained
    merged = tmp_path / "merged"
    assert main(["export", str(toy), "--adapter", str(out), str(merged)]) == 0
    shown = capsys.readouterr().out
    assert f"Written to {merged}: " in shown
    assert "Merged, and equal to the model with adapters" in shown
    assert "Reloaded, and equal to the model in memory" in shown
    assert "Answers end at: <|im_end|>." in shown


def test_a_merged_model_answers_like_the_model_with_its_adapter(ask, toy, trained, tmp_path, capsys):
    out, _ = trained
    file = tmp_path / "export.yaml"
    merged = tmp_path / "merged"
    settings = {"model_name_or_path": str(toy), "adapter_name_or_path": str(out), "export_dir": str(merged)}
    file.write_text(json.dumps(settings))
    assert main(["export", str(file)]) == 0
    capsys.readouterr()
    attached = ask(["chat", str(toy), "--adapter", str(out), *SHORT], "Who are you?\n")
    assert ask(["chat", str(merged), *SHORT], "Who are you?\n") == attached


def test_chat_without_a_model_is_a_configuration_error(capsys):
    assert main(["chat"]) == 2
    assert "model_name_or_path" in capsys.readouterr().err


def test_export_without_a_folder_is_a_configuration_error(toy, capsys):
    assert main(["export", str(toy)]) == 2
    assert "export_dir" in capsys.readouterr().err
