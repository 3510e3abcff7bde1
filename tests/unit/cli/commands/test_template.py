import pytest

from tests.tiny.tokenizers import byte_level_tokenizer
from tests.unit.cli.toy import save_toy_model
from tests.unit.data.chat.test_resolve import CHATML
from tunesmith.cli.main import main
from tunesmith.data.chat.catalog import find_entry, template_names


def save_tokenizer(folder, chat_template):
    byte_level_tokenizer(chat_template=chat_template).save_pretrained(folder)
    return str(folder)


def test_every_name_is_listed(capsys):
    assert main(["template", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = {name.strip() for line in lines[1:] for name in line.split("  ")[0].split(",")}
    assert listed == set(template_names())


def test_a_template_of_ours_is_shown_with_and_without_marks(capsys):
    assert main(["template", "show", "qwen3"]) == 0
    assert capsys.readouterr().out == find_entry("qwen3").source + "\n"
    assert main(["template", "show", "qwen3", "--marks"]) == 0
    assert capsys.readouterr().out == find_entry("qwen3").marked_source + "\n"


def test_a_misspelt_name_is_not_looked_for_on_a_hub(capsys):
    assert main(["template", "show", "qwen9"]) == 3
    assert "'qwen9' is no template of ours and no folder. Did you mean `qwen" in capsys.readouterr().err


def test_the_template_of_a_tokenizer_is_shown(capsys, tmp_path):
    model = str(save_toy_model(tmp_path / "model"))
    assert main(["template", "show", model]) == 0
    assert "<|im_start|>" in capsys.readouterr().out
    several = save_tokenizer(tmp_path / "several", {"default": "one", "tool_use": "two"})
    assert main(["template", "show", several]) == 0
    assert capsys.readouterr().out == "=== default ===\none\n=== tool_use ===\ntwo\n"
    assert main(["template", "show", several, "--marks"]) == 2
    assert main(["template", "show", save_tokenizer(tmp_path / "none", None)]) == 3
    assert "has no chat template of its own" in capsys.readouterr().err


def test_a_template_is_checked_against_one_of_ours(capsys, tmp_path):
    folder = save_tokenizer(tmp_path, CHATML)
    assert main(["template", "check", folder, "--template", "chatml"]) == 0
    shown = capsys.readouterr().out
    assert "Answers end with: '<|im_end|>'" in shown
    assert "one turn: same" in shown
    assert "a call and its result: differs after" in shown
    assert main(["template", "check", folder, "--template=llama3"]) == 3
    assert "one turn: differs after" in capsys.readouterr().out


def test_one_of_ours_that_agrees_is_looked_for(capsys, tmp_path):
    assert main(["template", "check", save_tokenizer(tmp_path / "a", CHATML)]) == 0
    assert "Ordinary conversations are the same as with: chatml," in capsys.readouterr().out
    strange = CHATML.replace("<|im_start|>", "@@")
    assert main(["template", "check", save_tokenizer(tmp_path / "b", strange)]) == 0
    shown = capsys.readouterr().out
    assert "None of ours prints ordinary conversations the same." in shown
    assert "one turn: learnt is ['An assistant.<|im_end|>']" in shown


def test_a_tokenizer_without_a_template_needs_a_name(capsys, tmp_path):
    folder = save_tokenizer(tmp_path, None)
    assert main(["template", "check", folder]) == 3
    assert "name a template: --template NAME" in capsys.readouterr().err
    assert main(["template", "check", folder, "--template", "glm4"]) == 0
    assert "Answers end with: '<|im_end|>'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["shwo"], "Did you mean `show`?"),
        (["list", "x"], "takes nothing after it"),
        (["show"], "`tunesmith template show NAME` is the form"),
        (["check", "a", "--x"], "`tunesmith template check MODEL [--template NAME]` is the form"),
        (["check", "a", "--template"], "--template has no value"),
    ],
)
def test_a_wrong_call_says_what_is_right(words, message, capsys):
    assert main(["template", *words]) == 2
    assert message in capsys.readouterr().err


def test_without_an_action_the_help_is_shown(capsys):
    assert main(["template"]) == 0
    assert "usage: tunesmith template list" in capsys.readouterr().out
