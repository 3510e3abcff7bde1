import json

import numpy as np
import pytest

from tests.tiny.runs import write_reward_model
from tunesmith.config import load_config
from tunesmith.errors import DataError
from tunesmith.evaluation.scores import resolve_score_rows, score_rows
from tunesmith.inference.reward import load_reward_scorer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A reward model on disk."""
    return write_reward_model(tmp_path_factory.mktemp("reward") / "model")


@pytest.fixture
def score(folder, tmp_path):
    """Write rows to a file and rate them."""

    def run(rows, *, scorer_change=None, **settings):
        file = tmp_path / "rows.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        config = load_config(
            {"model_name_or_path": str(folder), "dataset": str(file), "use_cpu": True, **settings}, purpose="generate"
        )
        scorer = load_reward_scorer(config)
        if scorer_change:
            scorer = scorer_change(scorer)
        found = list(score_rows(scorer, resolve_score_rows(config, str(file)), config))
        return scorer, found

    return run


def alone(scorer, text):
    ids = scorer.tokenizer(text, add_special_tokens=False)["input_ids"]
    return scorer.score([np.asarray(ids, dtype=np.int32)])[0]


def chatml(question, answer):
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>"


def test_conversations_are_rated_at_the_end_of_their_last_answer(score):
    rows = [
        {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello there"}]},
        {"messages": [{"role": "user", "content": "12?"}, {"role": "assistant", "content": "19"}]},
    ]
    scorer, found = score(rows)
    expected = [alone(scorer, chatml("Hi", "Hello there")), alone(scorer, chatml("12?", "19"))]
    assert [row.scores["score"] for row in found] == pytest.approx(expected, abs=1e-5)
    assert [row.row for row in found] == [0, 1]


def test_pairs_get_a_score_for_each_completion(score):
    rows = [{"instruction": "Hi", "input": "", "chosen": "Hello", "rejected": "Go away"}]
    scorer, (row,) = score(rows)
    assert row.scores["chosen"] == pytest.approx(alone(scorer, chatml("Hi", "Hello")), abs=1e-5)
    assert row.scores["rejected"] == pytest.approx(alone(scorer, chatml("Hi", "Go away")), abs=1e-5)
    assert set(row.to_dict()) == {"row", "chosen", "rejected"}


def test_plain_texts_need_no_template(score):
    rows = [{"text": "The capital of France is Paris."}, {"text": ""}, {"text": "x " * 40}]
    scorer, found = score(rows, cutoff_len=20)
    assert found[0].scores["score"] == pytest.approx(alone(scorer, rows[0]["text"]), abs=1e-5)
    assert found[1].to_dict() == {"row": 1, "dropped": "no text"}
    assert found[2].to_dict().keys() == {"row", "score", "cut"}


def test_rows_that_cannot_be_used_say_why_and_the_others_keep_their_number(score):
    good = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
    _, found = score([good, {"messages": []}, good], preprocessing_batch_size=2)
    assert [row.row for row in found] == [0, 1, 2]
    assert [bool(row.dropped) for row in found] == [False, True, False]
    assert found[0].scores == found[2].scores
    assert found[1].scores == {}


def test_max_samples_limits_the_rows(score):
    _, found = score([{"text": "one"}, {"text": "two"}, {"text": "three"}], max_samples=2)
    assert len(found) == 2


def test_conversations_without_a_template_are_refused(score):
    from dataclasses import replace

    rows = [{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}]
    with pytest.raises(DataError, match="has no chat template to write them with"):
        score(rows, scorer_change=lambda scorer: replace(scorer, template=None))
