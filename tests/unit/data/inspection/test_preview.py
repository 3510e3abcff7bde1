import numpy as np
import pytest

from tests.tiny.tokenizers import byte_level_tokenizer
from tests.unit.data.runs import question, small_run, write_sets
from tunesmith.data.inspection.preview import DroppedPreview, build_previews, build_sample, build_stream_previews
from tunesmith.data.inspection.source_rows import choose_rows
from tunesmith.errors import DataError


def previews_of(run, *row_ids):
    return build_previews(run.prepare(), list(row_ids), run.config, run.tokenizer, run.preparation)


def test_a_row_is_shown_in_runs_of_learnt_and_other_tokens_beside_its_raw_row(tmp_path):
    write_sets(tmp_path, {"sums": [question(1), question(2)]})
    run = small_run(tmp_path, "sums")
    (preview,) = previews_of(run, 1)
    (sample,) = preview.samples
    assert [(text.text, text.is_trained) for text in sample.runs] == [
        ("<|im_start|>user\nWhat is 2?<|im_end|>\n<|im_start|>assistant\n", False),
        ("2!<|im_end|>", True),
        ("\n", False),
    ]
    ids = [token for text in sample.runs for token in text.ids]
    assert ids == run.prepare().train[1]["input_ids"].tolist()
    assert (sample.num_tokens, sample.num_trained) == (len(ids), len(sample.runs[1].ids))
    assert sample.source.values == question(2)
    assert (sample.source.data_set, sample.source.place) == ("sums", "row 2")
    assert (preview.use, preview.place, preview.is_packed) == ("train", 2, False)


def test_a_dropped_row_is_shown_with_its_reason(tmp_path):
    write_sets(tmp_path, {"sums": [question(1), {"instruction": "no answer", "input": ""}]})
    run = small_run(tmp_path, "sums", bad_rows="skip")
    (preview,) = previews_of(run, 1)
    assert isinstance(preview, DroppedPreview)
    assert "no answer" in preview.source.dropped
    assert "sums.jsonl row 2" in preview.source.dropped
    assert preview.to_dict()["raw"] == {"instruction": "no answer", "input": ""}


def test_a_packed_row_is_shown_whole_and_once(tmp_path):
    write_sets(tmp_path, {"sums": [question(number) for number in range(6)]})
    run = small_run(tmp_path, "sums", packing=True, cutoff_len=512)
    data = run.prepare()
    assert len(data.train) == 1
    (preview,) = build_previews(data, [0, 4], run.config, run.tokenizer, run.preparation)
    assert preview.is_packed
    assert sorted(sample.row_id for sample in preview.samples) == list(range(6))
    assert {sample.source.values["output"] for sample in preview.samples} == {f"{number}!" for number in range(6)}


def test_rows_held_back_are_shown_as_such(tmp_path):
    write_sets(tmp_path, {"sums": [question(number) for number in range(6)]})
    run = small_run(tmp_path, "sums", val_size=2, do_eval=True)
    uses = [preview.use for preview in previews_of(run, *range(6))]
    assert sorted(uses) == ["evaluate"] * 2 + ["train"] * 4


def test_pieces_of_a_document_are_in_every_packed_row_that_has_one(tmp_path):
    write_sets(tmp_path, {"texts": [{"text": "Hello, world! " * 10}]}, formatting="text")
    run = small_run(tmp_path, "texts", stage="pt", cutoff_len=16)
    previews = previews_of(run, 0)
    assert len(previews) == len(run.prepare().train) > 1
    assert not previews[0].samples[0].runs[0].is_trained  # nothing predicts the first token
    text = "".join(part.text for preview in previews for part in preview.samples[0].runs)
    assert text == "Hello, world! " * 10 + "<|im_end|>"


def test_rows_of_the_second_data_set_are_numbered_after_the_first(tmp_path):
    write_sets(tmp_path, {"one": [question(1), question(2)], "two": [question(3)]})
    run = small_run(tmp_path, "one,two")
    data = run.prepare()
    assert choose_rows(data, row=3) == [2]
    (preview,) = build_previews(data, [2], run.config, run.tokenizer, run.preparation)
    assert preview.to_dict()["samples"][0]["data_set"] == "two"
    assert preview.to_dict()["samples"][0]["row"] == 3


def test_random_rows_are_drawn_with_the_seed_from_those_in_use(tmp_path):
    write_sets(tmp_path, {"sums": [question(0, "x")] + [{"instruction": "?"}] * 5 + [question(n) for n in range(20)]})
    data = small_run(tmp_path, "sums", bad_rows="skip").prepare()
    drawn = choose_rows(data, count=3, seed=1)
    assert drawn == choose_rows(data, count=3, seed=1) != choose_rows(data, count=3, seed=2)
    assert len(set(drawn)) == 3
    assert choose_rows(data, count=100) == [0, *range(6, 26)]
    assert choose_rows(data) == [0]


def test_a_row_that_is_not_there_is_an_error_with_the_number_of_rows(tmp_path):
    write_sets(tmp_path, {"sums": [question(1), question(2)]})
    with pytest.raises(DataError, match="--row is 3, but 2 rows were read; give a number from 1 to 2"):
        choose_rows(small_run(tmp_path, "sums").prepare(), row=3)


def test_the_two_completions_of_a_pair_are_shown_apart():
    tokenizer = byte_level_tokenizer()
    texts = ("Hi?", "Good.", "Bad.")
    ids = [tokenizer(text)["input_ids"] for text in texts]
    ends = np.cumsum([len(part) for part in ids]).tolist()
    pair = {
        "input_ids": np.array([token for part in ids for token in part], dtype=np.int32),
        "trained_spans": np.array([ends[0], ends[2]], dtype=np.int32),
        "row_id": 0,
        "prompt_end": ends[0],
        "chosen_end": ends[1],
        "signal": 0.0,
    }
    shown = [(run.text, run.is_trained, run.part) for run in build_sample(pair, tokenizer, None, "dpo").runs]
    assert shown == [("Hi?", False, "prompt"), ("Good.", True, "chosen"), ("Bad.", True, "rejected")]
    other = build_sample(pair, tokenizer, None, "kto").to_dict()["runs"]
    assert [run["part"] for run in other] == ["prompt", "completion", "completion of another row"]


@pytest.mark.parametrize("packing", [False, True])
def test_a_stream_is_shown_by_its_first_rows(tmp_path, packing):
    write_sets(tmp_path, {"sums": [question(number) for number in range(40)]})
    run = small_run(tmp_path, "sums", streaming=True, packing=packing, cutoff_len=128)
    previews = build_stream_previews(run.prepare().stream, 3, run.config, run.tokenizer)
    assert [preview.place for preview in previews] == [1, 2, 3]
    assert [preview.is_packed for preview in previews] == [packing] * 3
    for preview in previews:
        for sample in preview.samples:
            number = int(sample.source.place.removeprefix("line ")) - 1
            assert sample.source.values == question(number)
            assert f"What is {number}?" in sample.runs[0].text
            assert "row" not in sample.to_dict()
