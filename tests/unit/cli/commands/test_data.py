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
        "sums: 1 rows are not as they should be (see dropped: no answer), and this run stops for them. Correct them;",
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
    assert "no answer, 1 row: sums.jsonl row 3: column 'output' is missing" in capsys.readouterr().err
    assert main(["data", "prepare", "run.yaml", "bad_rows=skip"]) == 0
    shown = capsys.readouterr().out
    assert "sums: 3 examples in cache/" in shown
    assert len(list((folder / "cache").glob("*.arrow"))) == 1
    assert main(["data", "prepare", "run.yaml", "bad_rows=skip"]) == 0
    assert "taken from the cache" in capsys.readouterr().err


@pytest.fixture
def disordered(folder):
    """Conversations of which seven stop a run, each kind more often than is shown."""
    user, answer = {"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}
    rows = [[user, answer], *[[user, answer, answer]] * 4, [user, answer], *[[{"from": "nobody", "value": ""}]] * 3]
    write_sets(folder, {"chats": [{"conversations": turns} for turns in rows]}, formatting="sharegpt")
    (folder / "run.yaml").write_text((folder / "run.yaml").read_text().replace("sums", "chats"))
    with (folder / "run.yaml").open("a") as file:
        file.write("turn_order_policy: error\n")
    return ["run.yaml"]


def test_the_report_counts_all_rows_for_which_the_run_stops(disordered, capsys):
    assert main(["data", "report", *disordered]) == 0
    shown = capsys.readouterr().out
    assert "dropped, two answers in a row: 4 (chats.jsonl row 2: turn 3; chats.jsonl row 3: turn 3; chats" in shown
    assert "dropped, unknown role: 3 (chats.jsonl row 7: conversations[0].from is 'nobody'; known are " in shown
    assert "7 rows are not as they should be (see dropped: two answers in a row, unknown role), and this" in shown
    assert main(["data", "report", *disordered, "bad_rows=skip", "turn_order_policy=merge"]) == 0
    assert "this run stops for them" not in capsys.readouterr().out


def test_preparing_counts_all_rows_for_which_the_run_stops_and_says_so(disordered, folder, capsys):
    assert main(["data", "prepare", *disordered]) == 3
    told = capsys.readouterr()
    assert "chats: 2 examples in cache/" in told.out
    assert "data set 'chats' has 7 rows that are not as they should be" in told.err
    assert "\n  two answers in a row, 4 rows: chats.jsonl row 2: turn 3; " in told.err
    assert "\n  unknown role, 3 rows: chats.jsonl row 7: " in told.err
    assert main(["data", "prepare", *disordered, "turn_order_policy=skip", "bad_rows=skip"]) == 0
    assert "taken from the cache" in capsys.readouterr().err


def test_the_report_counts_lines_that_are_no_rows_to_the_end_and_the_preview_says_why(folder, capsys):
    with (folder / "sums.jsonl").open("a") as file:
        file.write("{nothing\n" * 5 + json.dumps(question(9)) + '\n{"instruction": "cut o')
    good = sum(1 for _ in (folder / "sums.jsonl").open()) - 6
    assert main(["data", "report", "run.yaml", "--json"]) == 0
    (account,) = json.loads(capsys.readouterr().out)["sets"]
    assert (account["read"], account["dropped"]["malformed row"]) == (good + 6, 6)
    assert len(account["shown"]["malformed row"]) == 3
    assert main(["preview", "run.yaml", "--row", str(good + 6)]) == 0
    assert "its writer was stopped" in capsys.readouterr().out


def test_preparing_needs_the_columns_that_somebody_wrote_down(folder, capsys):
    write_sets(folder, {"sums": [question(1)]}, columns={"system": "sytem"})
    assert main(["data", "prepare", "run.yaml", "bad_rows=skip"]) == 0
    assert main(["data", "prepare", "run.yaml"]) == 3
    assert "expected the column 'sytem' (system)" in capsys.readouterr().err
    assert main(["data", "report", "run.yaml"]) == 0


def test_prepared_rows_can_be_taken_to_a_run_that_stops_for_none(disordered, folder, capsys):
    words = [*disordered, "tokenized_path=prepared"]
    assert main(["data", "prepare", *words]) == 3
    (folder / "chats.jsonl").unlink()
    assert main(["data", "prepare", *words]) == 3
    assert "has 7 rows that are not as they should be" in capsys.readouterr().err
    assert main(["data", "prepare", *words, "turn_order_policy=skip", "bad_rows=skip"]) == 0
    assert main(["data", "prepare", *words, "turn_order_policy=merge"]) == 3
    assert 'turn_order_policy was "skip or error" and is "merge"' in capsys.readouterr().err


def test_without_an_action_it_says_what_there_is(capsys):
    assert main(["data"]) == 0
    assert "tunesmith data report FILE" in capsys.readouterr().out
    assert main(["data", "raport"]) == 2
    assert "there is no action 'raport'; allowed is one of report, prepare. Did you mean" in capsys.readouterr().err


@pytest.mark.parametrize(("action", "words"), [("report", "nothing to report on"), ("prepare", "nothing to prepare")])
def test_a_run_that_streams_has_nothing_beforehand(folder, capsys, action, words):
    assert main(["data", action, "run.yaml", "streaming=true", "max_steps=1"]) == 2
    assert words in capsys.readouterr().err
