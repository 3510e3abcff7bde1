"""`tunesmith score` in this process, on a toy reward model."""

import json

import pytest

from tests.unit.cli.toy import save_toy_model, save_toy_reward_model
from tunesmith.cli.main import main
from tunesmith.evaluation import scores
from tunesmith.inference import reward


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_toy_reward_model(tmp_path_factory.mktemp("reward"))


@pytest.fixture
def rows(tmp_path):
    file = tmp_path / "rows.json"
    pairs = [{"instruction": f"Say {n}", "input": "", "chosen": f"{n}", "rejected": "no"} for n in range(5)]
    file.write_text(json.dumps([*pairs, {"instruction": "", "input": "", "chosen": "", "rejected": ""}]))
    return file


def test_scores_go_to_standard_output_a_line_per_row(folder, rows, capsys):
    assert main(["score", str(folder), str(rows), "use_cpu=true"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["row"] for line in lines] == list(range(6))
    assert all({"chosen", "rejected"} <= set(line) for line in lines[:5])
    assert "dropped" in lines[5]


def test_scores_go_to_a_file_and_a_summary_to_standard_output(folder, rows, tmp_path, capsys):
    out = tmp_path / "scores.jsonl"
    assert main(["score", str(folder), str(rows), "--output", str(out), "use_cpu=true"]) == 0
    shown = capsys.readouterr().out
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    higher = sum(line["chosen"] > line["rejected"] for line in lines[:5])
    assert f"the score head is that of {folder}. 5 rows rated, 1 could not be used" in shown
    assert f"rated higher in {higher / 5:.1%} of them. Written to {out}." in shown


def test_rows_longer_than_the_limit_are_counted(folder, tmp_path, capsys):
    file = tmp_path / "texts.jsonl"
    file.write_text('{"text": "one two three four five six seven eight nine ten"}\n')
    words = ["score", str(folder), str(file), f"--output={tmp_path / 'out.jsonl'}", "cutoff_len=8", "use_cpu=true"]
    assert main(words) == 0
    assert "1 were longer than cutoff_len and cut" in capsys.readouterr().out


def test_a_model_without_a_head_ends_the_command_with_what_was_found(rows, tmp_path, capsys):
    assert main(["score", str(save_toy_model(tmp_path / "plain")), str(rows), "use_cpu=true"]) == 4
    assert "has no score head" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["a.json", "--dataset", "b.json"]])
def test_one_file_is_rated_at_a_time(folder, words, capsys):
    assert main(["score", str(folder), *words, "use_cpu=true"]) == 2


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (".", "which is a folder. Name a file"),
        ("rows.json", "which holds the rows that are to be rated. Name another file"),
        ("rows.json/scores.jsonl", "nothing can be written to"),
    ],
)
def test_a_place_where_no_scores_can_go_is_refused_before_the_model_is_loaded(
    folder, rows, tmp_path, place, message, monkeypatch, capsys
):
    monkeypatch.setattr(reward, "load_reward_scorer", None)
    before = rows.read_text()
    assert main(["score", str(folder), str(rows), "--output", str(tmp_path / place)]) == 2
    assert message in capsys.readouterr().err
    assert rows.read_text() == before


def test_scores_take_the_place_of_older_ones_when_all_rows_are_rated(folder, rows, tmp_path, monkeypatch, capsys):
    out = tmp_path / "scores.jsonl"
    out.write_text("old")
    words = ["score", str(folder), str(rows), "--output", str(out), "use_cpu=true"]
    right = scores.score_rows

    def stop(*arguments, **options):
        yield from list(right(*arguments, **options))[:3]
        raise KeyboardInterrupt

    monkeypatch.setattr(scores, "score_rows", stop)
    assert main(words) == 130
    assert out.read_text() == "old"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["rows.json", "scores.jsonl"]
    monkeypatch.setattr(scores, "score_rows", right)
    assert main(words) == 0
    assert len(out.read_text().splitlines()) == 6


@pytest.mark.parametrize(("name", "content"), [("none.json", "[]"), ("none.jsonl", "")])
def test_a_file_without_rows_is_refused(folder, tmp_path, name, content, capsys):
    (tmp_path / name).write_text(content)
    assert main(["score", str(folder), str(tmp_path / name), "use_cpu=true"]) == 3
    assert f"data set {str(tmp_path / name)!r} has no rows" in capsys.readouterr().err
