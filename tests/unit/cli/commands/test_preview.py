import json

import pytest

from tests.unit.cli.toy import save_toy_model
from tests.unit.data.runs import question, write_sets
from tunesmith.cli.main import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    save_toy_model(tmp_path / "model")
    write_sets(tmp_path, {"sums": [question(1), question(2, "a\x1b[2Jb"), {"instruction": "nothing"}]})
    (tmp_path / "run.yaml").write_text(
        "model_name_or_path: ./model\nstage: sft\ndataset: sums\ndataset_dir: .\ndataset_cache_dir: cache\n"
        "output_dir: out\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_first_row_is_shown_with_its_raw_row_and_what_is_learnt(folder, capsys):
    for weights in (folder / "model").glob("*.safetensors"):
        weights.unlink()  # a look at the data needs the tokenizer alone
    assert main(["preview", "run.yaml"]) == 0
    shown = capsys.readouterr().out
    assert "=== row 1 to train ===\ndata set sums, sums.jsonl, row 1\n{" in shown
    assert '  "instruction": "What is 1?",' in shown
    assert "<|im_start|>user\nWhat is 1?<|im_end|>\n<|im_start|>assistant\n>>>1!<|im_end|><<<\n" in shown
    assert not (folder / "out").exists()


def test_text_that_would_move_the_cursor_is_shown_escaped(folder, capsys):
    assert main(["preview", "run.yaml", "--row", "2"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert ">>>a\\x1b[2Jb<|im_end|><<<" in shown


def test_a_dropped_row_says_why(folder, capsys):
    assert main(["preview", "run.yaml", "--row", "3"]) == 0
    assert (
        "The model will not see this row: no answer (sums.jsonl row 3: column 'output' is missing"
        in capsys.readouterr().out
    )


def test_packed_rows_show_their_borders(folder, capsys):
    assert main(["preview", "run.yaml", "packing=true"]) == 0
    shown = capsys.readouterr().out
    assert "=== packed row 1 to train: 2 samples, " in shown
    assert "--- sample 1 of 2 ---" in shown
    assert "--- sample 2 of 2 ---" in shown


def test_a_program_gets_json_with_token_ids(folder, capsys):
    assert main(["preview", "run.yaml", "--random", "2", "--json"]) == 0
    previews = json.loads(capsys.readouterr().out)
    assert [preview["samples"][0]["raw"]["instruction"] for preview in previews] == ["What is 1?", "What is 2?"]
    runs = previews[0]["samples"][0]["runs"]
    assert [run["trained"] for run in runs] == [False, True, False]
    assert previews[0]["samples"][0]["num_tokens"] == sum(len(run["ids"]) for run in runs)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--row", "1", "--random", "2"], "--row shows one row and --random draws some"),
        (["dataset=null"], "dataset is not set"),
        (["streaming=true", "max_steps=1", "--row", "1"], "rows that are streamed have no numbers"),
    ],
)
def test_what_cannot_be_shown_is_refused(folder, capsys, words, message):
    assert main(["preview", "run.yaml", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_run_that_streams_shows_what_comes_first(folder, capsys):
    assert main(["preview", "run.yaml", "streaming=true", "max_steps=1", "--random", "2"]) == 0
    shown = capsys.readouterr().out
    assert "=== row 1 to train ===\ndata set sums, sums.jsonl, line " in shown
    assert "=== row 2 to train ===" in shown
    assert not (folder / "cache").exists()
