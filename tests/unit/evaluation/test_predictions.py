import json

import numpy as np
import pytest

from tests.tiny.tokenizers import byte_level_tokenizer
from tunesmith.config import GenerationConfig
from tunesmith.errors import DataError
from tunesmith.evaluation.predictions import interleave, predict, split_last_answer


class Echo:
    """Answers every prompt with its own last tokens; notes what it was asked."""

    def __init__(self):
        self.calls = []

    def generate(self, prompts, options):
        self.calls.append((len(prompts), options))
        return [list(prompt[-3:]) for prompt in prompts]

    def stream(self, prompt, options):
        raise NotImplementedError


@pytest.fixture(scope="module")
def tokenizer():
    return byte_level_tokenizer()


def example(tokenizer, *parts, row_id=0):
    """Build a row of prompt and answer texts in turn; the answers are learnt."""
    ids, spans = [], []
    for number, text in enumerate(parts):
        tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
        if number % 2:
            spans += [len(ids), len(ids) + len(tokens)]
        ids += tokens
    return {"input_ids": np.array(ids, np.int32), "trained_spans": np.array(spans, np.int32), "row_id": row_id}


def test_the_last_answer_is_split_off():
    row = {
        "input_ids": np.array([11, 12, 13, 14, 15, 16, 17, 18], np.int32),
        "trained_spans": np.array([2, 4, 6, 8], np.int32),
        "row_id": 0,
    }
    assert split_last_answer(row) == ([11, 12, 13, 14, 15, 16], [17, 18])


def test_separators_after_the_answer_belong_to_nobody():
    row = {"input_ids": np.arange(20, 26), "trained_spans": np.array([2, 4]), "row_id": 0}
    assert split_last_answer(row) == ([20, 21], [22, 23])


def test_a_row_without_a_prompt_is_refused_with_its_number():
    row = {"input_ids": np.arange(3), "trained_spans": np.array([0, 3]), "row_id": 41}
    with pytest.raises(DataError, match=r"Row 41 has no prompt.*train_on_prompt set to false"):
        split_last_answer(row)


def test_answers_are_written_beside_the_expected_ones(tokenizer, tmp_path):
    rows = [
        example(tokenizer, "<|im_start|>user\nSay abc", "abc<|im_end|>"),
        example(tokenizer, "q", "old", "Say 你好", "你好"),
    ]
    file = tmp_path / "generated_predictions.jsonl"
    metrics = predict(Echo(), rows, tokenizer, file)
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [line["label"] for line in lines] == ["abc", "你好"]
    assert lines[0]["prompt"] == "<|im_start|>user\nSay abc"
    assert lines[1]["prompt"] == "qoldSay 你好"
    assert lines[0]["predict"] == tokenizer.decode(rows[0]["input_ids"][:-4][-3:])
    assert "你好" in file.read_text(encoding="utf-8")
    assert metrics["num_predictions"] == 2
    assert {"bleu-4", "rouge-1", "rouge-2", "rouge-l"} < metrics.keys()


def test_packed_rows_are_answered_one_by_one_and_greedily(tokenizer, tmp_path):
    row = example(tokenizer, "question", "answer")
    echo = Echo()
    predict(echo, [[row, row], row], tokenizer, tmp_path / "file", chunk_rows=2)
    assert [count for count, _ in echo.calls] == [2, 1]
    assert all(not options.do_sample for _, options in echo.calls)


def test_the_options_asked_for_are_used(tokenizer, tmp_path):
    echo, options = Echo(), GenerationConfig(max_new_tokens=5)
    predict(echo, [example(tokenizer, "question", "answer")], tokenizer, tmp_path / "file", options=options)
    assert echo.calls == [(1, options)]


def test_an_empty_set_is_refused(tokenizer, tmp_path):
    with pytest.raises(DataError, match="the evaluation set is empty"):
        predict(Echo(), [], tokenizer, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_rows_that_were_dealt_out_come_back_in_order():
    assert interleave([list("ad"), list("be"), list("c")]) == list("abcde")
    assert interleave([[], []]) == []
