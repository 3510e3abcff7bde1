import json

import pytest

from tunesmith.cli.commands.config import run
from tunesmith.cli.main import main
from tunesmith.errors import ConfigError


@pytest.fixture
def file(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "rows.jsonl").touch()
    (tmp_path / "run.yaml").write_text("model_name_or_path: ./model\ndataset: rows.jsonl\noutput_dir: out\nseed: 7\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run.yaml"


def test_a_good_file_is_said_to_be_good_with_what_is_worth_knowing(file, capsys):
    assert main(["config", "check", "run.yaml", "packing=true", "max_samples=5"]) == 0
    assert capsys.readouterr().out == (
        "note: `max_samples: 5` caps the rows of each data set first; then they are packed.\n"
        "run.yaml: no problems; 7 settings, the rest at defaults\n"
    )


def test_a_bad_file_ends_with_code_2_and_every_problem(file, capsys):
    file.write_text(file.read_text() + "sed: 1\nlora_rank: 0\n")
    assert main(["config", "check", "run.yaml"]) == 2
    assert capsys.readouterr().err == (
        "error: run.yaml:5: `sed` is not a setting. Did you mean `seed`?\n"
        "run.yaml:6: `lora_rank` is 0; allowed is a whole number, 1 or more.\n"
    )


def test_each_value_is_shown_with_where_it_came_from(file, capsys, monkeypatch):
    monkeypatch.setenv("TUNESMITH_CUTOFF_LEN", "64")
    monkeypatch.setenv("TUNESMITH_HF_HUB_TOKEN", "hunter2")
    assert main(["config", "show", "run.yaml", "--plot_loss"]) == 0
    shown = capsys.readouterr().out
    lines = [line.split() for line in shown.splitlines()]
    for expected in (
        ["seed", "7", "run.yaml:4"],
        ["cutoff_len", "64", "TUNESMITH_CUTOFF_LEN"],
        ["plot_loss", "true", "--plot_loss"],
        ["do_train", "true", "implied", "(dataset", "is", "set)"],
        ["learning_rate", "5e-05", "default"],
        ["lora_target", "all", "default"],
        ["warmup_ratio", "-", "default"],
        ["hf_hub_token", "(hidden)", "TUNESMITH_HF_HUB_TOKEN"],
        ["ms_hub_token", "-", "default"],
    ):
        assert expected in lines
    assert "hunter2" not in shown


def test_only_changes_are_shown_on_request(file, capsys):
    assert main(["config", "show", "run.yaml", "--changed"]) == 0
    shown = capsys.readouterr().out
    assert "seed " in shown
    assert "default" not in shown
    assert "### export" not in shown


def test_a_starting_file_and_the_reference_are_printed(capsys):
    assert main(["config", "new", "pt"]) == 0
    assert "\nstage: pt\n" in capsys.readouterr().out
    assert main(["config", "reference"]) == 0
    assert capsys.readouterr().out.startswith("# Options\n")


def test_the_schema_is_json(capsys):
    assert main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Tunesmith configuration"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["chek"],
            r"there is no action 'chek'; allowed is one of check, show, new, schema, reference\. Did you mean `check`",
        ),
        (["new"], "takes one stage"),
        (["schema", "x"], r"`config schema` takes nothing after it; there is 'x'"),
        (["reference", "x"], r"`config reference` takes nothing after it"),
    ],
)
def test_wrong_words_are_refused(words, message):
    with pytest.raises(ConfigError, match=message):
        run(words)


def test_no_action_shows_the_help(capsys):
    assert run([]) == 0
    assert capsys.readouterr().out.startswith("usage: tunesmith config check FILE")
