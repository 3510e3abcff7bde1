import json

import pytest

from tests.unit.cli.toy import save_toy_model
from tests.unit.data.runs import question, write_sets
from tunesmith.cli.main import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    save_toy_model(tmp_path / "model")
    for weights in (tmp_path / "model").glob("*.safetensors"):
        weights.unlink()
    write_sets(tmp_path, {"sums": [question(1), question(1), {"instruction": "nothing"}, question(2, "")]})
    (tmp_path / "run.yaml").write_text(
        "model_name_or_path: ./model\nstage: sft\ndataset: sums\ndataset_dir: .\ndataset_cache_dir: cache\n"
        "output_dir: out\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_report_has_account_histogram_and_warnings_and_draws_a_picture(folder, capsys):
    assert main(["data", "report", "run.yaml"]) == 0
    shown = capsys.readouterr().out
    for part in (
        "dropped, no answer: 1 (sums.jsonl row 3",
        "Tokens per example\n",
        "1 are equal to one before them; the first: rows 1, 2",
        "Warnings\n  - sums: 1 rows have an empty answer",
        "sums: 1 rows are not what the data set says (see dropped); a run stops for them",
        "The lengths are drawn in out/data_lengths.png.",
    ):
        assert part in shown
    assert (folder / "out" / "data_lengths.png").stat().st_size > 1000


def test_the_report_is_json_on_request(folder, capsys):
    assert main(["data", "report", "run.yaml", "--json", "--out", "elsewhere"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["sets"][0]["truncated"] == {
        "prompt_cut": 0,
        "answer_cut": 0,
        "end_marker_lost": 0,
        "turns_dropped": 0,
    }
    assert report["duplicates"]["count"] == 1
    assert (folder / "elsewhere" / "data_lengths.png").exists()
    assert not (folder / "out").exists()


def test_preparing_fills_the_cache_without_the_weights_of_the_model(folder, capsys):
    assert main(["data", "prepare", "run.yaml"]) == 3
    assert "no answer: sums.jsonl row 3: column 'output' is missing" in capsys.readouterr().err
    assert main(["data", "prepare", "run.yaml", "bad_rows=skip"]) == 0
    shown = capsys.readouterr().out
    assert "sums: 3 examples in cache/" in shown
    assert len(list((folder / "cache").glob("*.arrow"))) == 1
    assert main(["data", "prepare", "run.yaml", "bad_rows=skip"]) == 0
    assert "taken from the cache" in capsys.readouterr().err


def test_without_an_action_it_says_what_there_is(capsys):
    assert main(["data"]) == 0
    assert "tunesmith data report FILE" in capsys.readouterr().out
    assert main(["data", "raport"]) == 2
    assert "there is no action 'raport'; allowed is one of report, prepare. Did you mean" in capsys.readouterr().err


@pytest.mark.parametrize(("action", "words"), [("report", "nothing to report on"), ("prepare", "nothing to prepare")])
def test_a_run_that_streams_has_nothing_beforehand(folder, capsys, action, words):
    assert main(["data", action, "run.yaml", "streaming=true", "max_steps=1"]) == 2
    assert words in capsys.readouterr().err
