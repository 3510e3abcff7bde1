import json
import logging
from collections import Counter

import numpy as np
import pytest

from tests.tiny.tokenizers import byte_level_tokenizer
from tests.unit.data.stored import stored_rows
from tunesmith.config import load_config
from tunesmith.data import prepare_data
from tunesmith.data.chat import resolve_template
from tunesmith.data.loading.datasets import ExampleDataset, PackedDataset, Part
from tunesmith.data.pipeline import _check_trained
from tunesmith.errors import DataError

QUESTIONS = [
    {"instruction": f"What is {n} + 1?", "input": "", "output": f"It is {n + 1}. " * (1 + n % 5)} for n in range(40)
]
TEXTS = [{"text": f"Document {n} says hello. " * (1 + n % 7)} for n in range(30)]


@pytest.fixture
def folder(tmp_path):
    write_rows(tmp_path / "questions.json", QUESTIONS)
    write_rows(tmp_path / "more.json", [{"instruction": "Hello?", "input": "", "output": "Hello, world!"}] * 3)
    write_rows(tmp_path / "texts.jsonl", TEXTS)
    catalog = {
        "questions": {"file_name": "questions.json"},
        "more": {"file_name": "more.json"},
        "texts": {"file_name": "texts.jsonl", "formatting": "text"},
    }
    (tmp_path / "dataset_info.json").write_text(json.dumps(catalog))
    return tmp_path


def write_rows(path, rows):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text(json.dumps(rows))


def prepare(folder, *, dataset="questions", stage="sft", **settings):
    config = load_config(
        {
            "model_name_or_path": "some/model",
            "stage": stage,
            "dataset": dataset,
            "dataset_dir": str(folder),
            "dataset_cache_dir": str(folder / "cache"),
            "output_dir": str(folder / "out"),
            "max_steps": 1,
            **({"template": "chatml"} if stage == "sft" else {}),
            **settings,
        },
        environ={},
    )
    tokenizer = byte_level_tokenizer()
    return prepare_data(config, tokenizer, resolve_template(config.data, tokenizer) if stage == "sft" else None)


def texts_of(dataset):
    tokenizer = byte_level_tokenizer()
    return [tokenizer.decode(row["input_ids"]) for row in dataset]


def all_examples(dataset):
    return [sample for row in dataset for sample in (row if isinstance(row, list) else [row])]


def test_what_is_trained_is_the_answer_and_its_end_marker(folder):
    example = prepare(folder).train[3]
    tokenizer = byte_level_tokenizer()
    assert tokenizer.decode(example["input_ids"]).startswith("<|im_start|>")
    start, end = example["trained_spans"]
    assert tokenizer.decode(example["input_ids"][start:end]) == "It is 4. It is 4. It is 4. It is 4. <|im_end|>"


def test_every_row_is_accounted_for(folder):
    rows = [*QUESTIONS[:4], {"instruction": "No answer"}, {"instruction": "A number", "output": 7}, *QUESTIONS[4:9]]
    write_rows(folder / "questions.json", rows)
    report = prepare(folder, dataset="questions,more", bad_rows="skip").report
    first, second = report.sets
    assert (first.read, first.used, sum(first.dropped.values())) == (11, 9, 2)
    assert (second.read, second.used, second.dropped) == (3, 3, {})
    assert first.dropped["no answer"] == 1
    assert "questions.json row 5" in first.shown["no answer"][0]
    assert "questions train 11 9 2" in " ".join(report.render().split())
    assert json.loads(json.dumps(report.to_dict()))["sets"][0]["read"] == 11


def test_a_row_that_is_not_as_it_should_be_stops_the_run(folder):
    write_rows(folder / "questions.json", [*QUESTIONS[:4], {"instruction": "A number", "output": 7}])
    with pytest.raises(DataError, match=r"wrong type: questions.json row 5: output: expected text, found a number"):
        prepare(folder)
    assert len(prepare(folder, stringify_values=True).train) == 5
    assert len(prepare(folder, bad_rows="skip").train) == 4
    with pytest.raises(DataError, match=r"wrong type, 1 row: questions.json row 5"):  # now out of the cache
        prepare(folder)


def test_malformed_rows_are_bad_rows_like_any_other(folder):
    lines = [json.dumps(row) for row in QUESTIONS[:3]]
    (folder / "lines.jsonl").write_text("\n".join(["{nothing", lines[0], "1", lines[1], "[]", lines[2], '{"instr']))
    entry = {"dataset": "lines", "dataset_info": {"lines": {"file_name": "lines.jsonl"}}}
    with pytest.raises(DataError) as caught:
        prepare(folder, **entry)
    first, second, third = str(caught.value).splitlines()[1:4]
    assert first.startswith("  malformed row: lines.jsonl row 1: line 1, column 2 is not valid JSON")
    assert second == "  malformed row: lines.jsonl row 3: line 3, expected an object, found int"
    assert third == "  malformed row: lines.jsonl row 5: line 5, expected an object, found list"
    assert "`bad_rows: skip` leaves such rows out" in str(caught.value)
    (report,) = prepare(folder, **entry, bad_rows="skip").report.sets
    assert (report.read, report.used, report.dropped) == (7, 3, {"malformed row": 4})
    with pytest.raises(DataError, match=r"malformed row, 4 rows: lines\.jsonl row 1:"):  # now out of the cache
        prepare(folder, **entry)


def test_a_value_that_is_there_twice_stops_the_run_where_it_is_used(folder):
    beside = '{"instruction": "Q", "output": "A", "other": 1, "other": 2}\n'
    twice = '{"instruction": "Q", "output": "A", "output": "B"}\n'
    (folder / "twice.jsonl").write_text(beside + twice)
    entry = {"dataset": "twice", "dataset_info": {"twice": {"file_name": "twice.jsonl"}}}
    with pytest.raises(DataError, match=r"row 2: output: expected text, found .*\(two values under 'output'\)"):
        prepare(folder, **entry)
    assert len(prepare(folder, **entry, bad_rows="skip").train) == 1


def test_an_order_of_turns_stops_the_run_also_out_of_the_cache(folder):
    turns = [{"from": role, "value": "Hi"} for role in ("human", "gpt", "gpt")]
    write_rows(folder / "chats.jsonl", [{"conversations": turns[:2]}, {"conversations": turns}])
    chats = {"dataset": "chats", "dataset_info": {"chats": {"file_name": "chats.jsonl"}}}
    with pytest.raises(DataError, match=r"two answers in a row: chats.jsonl row 2"):
        prepare(folder, **chats, turn_order_policy="error")
    assert len(prepare(folder, **chats, turn_order_policy="skip").train) == 1
    with pytest.raises(DataError, match=r"two answers in a row, 1 row: chats.jsonl row 2"):
        prepare(folder, **chats, turn_order_policy="error")
    assert len(list((folder / "cache").glob("*.arrow"))) == 1


def test_a_row_is_described_by_data_set_file_and_number(folder):
    data = prepare(folder, dataset="questions,more")
    assert data.describe_row(data.train[0]["row_id"]) == f"data set questions, file {folder / 'questions.json'}, row 1"
    assert data.describe_row(data.train[-1]["row_id"]) == f"data set more, file {folder / 'more.json'}, row 3"
    with pytest.raises(KeyError, match="no example was made of row 43"):
        data.describe_row(43)


def test_documents_are_packed_and_conversations_are_not_unless_the_run_says_so(folder):
    assert isinstance(prepare(folder).train, ExampleDataset)
    assert isinstance(prepare(folder, dataset="texts", stage="pt").train, PackedDataset)
    assert isinstance(prepare(folder, dataset="texts", stage="pt", packing=False).train, ExampleDataset)
    assert isinstance(prepare(folder, neat_packing=True).train, PackedDataset)


def test_packing_documents_keeps_every_token(folder):
    data = prepare(folder, dataset="texts", stage="pt", cutoff_len=64)
    single = prepare(folder, dataset="texts", stage="pt", cutoff_len=10_000, packing=False)
    packed = Counter(int(token) for sample in all_examples(data.train) for token in sample["input_ids"])
    assert packed == Counter(int(token) for row in single.train for token in row["input_ids"])
    assert set(data.train.lengths[:-1].tolist()) == {64}
    assert data.report.packing.tokens == sum(packed.values())


def test_packing_conversations_splits_none(folder):
    single, packed = prepare(folder).train, prepare(folder, packing=True, cutoff_len=512)
    assert sorted(texts_of(all_examples(packed.train))) == sorted(texts_of(single))
    assert len(packed.train) < len(single)
    assert packed.train.lengths.max() <= 512
    assert packed.report.packing.samples == 40
    assert f"packed: 40 samples in {len(packed.train)} rows of 512 tokens" in packed.report.render()


def test_rows_are_capped_before_they_are_packed(folder):
    data = prepare(folder, dataset="questions,more", max_samples=10, packing=True)
    assert [report.read for report in data.report.sets] == [10, 3]
    assert sorted(sample["row_id"] for sample in all_examples(data.train)) == list(range(13))


@pytest.mark.parametrize(("val_size", "count"), [(0.1, 4), (7, 7), (1, 1), (0.001, 1)])
def test_rows_are_held_back_for_evaluation(folder, val_size, count):
    data = prepare(folder, val_size=val_size)
    held_back = {row["row_id"] for row in data.evals["validation"]}
    trained = {row["row_id"] for row in data.train}
    assert len(held_back) == count
    assert held_back | trained == set(range(40))
    assert not held_back & trained
    assert data.report.held_back_examples == count


def test_the_choice_of_held_back_rows_follows_the_seed(folder):
    def chosen(seed):
        return [row["row_id"] for row in prepare(folder, val_size=8, seed=seed).evals["validation"]]

    assert chosen(1) == chosen(1)
    assert chosen(1) != chosen(2)


def test_holding_back_everything_is_refused(folder):
    with pytest.raises(DataError, match="val_size is 40, but there are only 40 usable rows"):
        prepare(folder, val_size=40)


def test_other_data_sets_are_evaluated_on(folder):
    data = prepare(folder, eval_dataset="more")
    assert [report.role for report in data.report.sets] == ["train", "eval"]
    assert [row["row_id"] for row in data.evals["validation"]] == [40, 41, 42]
    assert len(data.train) == 40


def test_a_run_without_training_rows_has_only_evaluation_rows(folder):
    data = prepare(folder, dataset="", eval_dataset="more", do_train=False, do_eval=True)
    assert data.train is None
    assert len(data.evals["validation"]) == 3


def test_the_second_run_reads_the_cache_and_a_changed_setting_does_not(folder, caplog):
    def log_of(**settings):
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="tunesmith"):
            prepare(folder, **settings)
        return caplog.text

    assert "40 rows prepared" in log_of()
    assert "40 rows taken from the cache" in log_of()
    assert "40 rows prepared" in log_of(overwrite_cache=True)
    assert "40 rows taken from the cache" in log_of(output_dir=str(folder / "elsewhere"))
    assert "40 rows prepared" in log_of(cutoff_len=100)
    write_rows(folder / "questions.json", QUESTIONS[:20])
    assert "20 rows prepared" in log_of()


def test_moving_or_renaming_the_data_keeps_the_cache(folder, caplog):
    prepare(folder)
    (folder / "questions.json").rename(folder / "renamed.json")
    info = {"other": {"file_name": "renamed.json"}}
    with caplog.at_level(logging.INFO, logger="tunesmith"):
        data = prepare(folder, dataset="other", dataset_info=info)
    assert "Data set other: 40 rows taken from the cache" in caplog.text
    assert data.describe_row(0) == f"data set other, file {folder / 'renamed.json'}, row 1"


def test_a_sample_has_exactly_its_size_and_uses_every_row_before_one_twice(folder):
    def row_texts(num_samples):
        info = {"questions": {"file_name": "questions.json", "num_samples": num_samples}}
        return Counter(texts_of(prepare(folder, dataset_info=info).train))

    assert set(row_texts(25).values()) == {1}
    assert sum(row_texts(25).values()) == 25
    assert sorted(row_texts(100).values()) == [2] * 20 + [3] * 20


def test_an_empty_data_set_is_an_error(folder):
    write_rows(folder / "questions.json", [])
    with pytest.raises(DataError, match=r"data set 'questions' has no rows: .*questions\.json"):
        prepare(folder)


def test_a_data_set_of_the_wrong_kind_names_set_stage_and_missing_field(folder):
    info = {"texts": {"file_name": "texts.jsonl", "formatting": "alpaca"}}
    with pytest.raises(DataError, match=r"data set 'texts' is not of the kind that stage sft learns from") as caught:
        prepare(folder, dataset="texts", dataset_info=info)
    assert "texts.jsonl row 1: expected the column 'output' (response), found 'text'" in str(caught.value)
    with pytest.raises(DataError, match=r"data set 'texts' holds plain text .* stage sft learns from answers"):
        prepare(folder, dataset="texts")


def rows_of(data):
    return [row["row_id"] for row in data.train]


def test_data_sets_are_interleaved_as_the_run_says_and_the_plan_counts_their_rows(folder):
    over = prepare(folder, dataset="questions,more", mix_strategy="interleave_over")
    assert rows_of(over)[:8] == [0, 40, 1, 41, 2, 42, 3, 40]
    assert len(over.train) == 80
    assert "interleave_over, questions: 40 rows available, 40 used, 0 repeated" in over.report.render()
    assert "interleave_over, more: 3 rows available, 3 used, 37 repeated" in over.report.render()
    assert over.report.to_dict()["shares"][1] == {"name": "more", "available": 3, "used": 3, "repeated": 37}
    under = prepare(folder, dataset="questions,more", mix_strategy="interleave_under", val_size=0)
    assert rows_of(under) == [0, 40, 1, 41, 2, 42]
    once = prepare(folder, dataset="questions,more", mix_strategy="interleave_once", interleave_probs=[0.5, 0.5])
    assert sorted(rows_of(once)) == list(range(43))
    assert rows_of(prepare(folder, dataset="questions,more")) == list(range(43))


def test_a_cap_may_be_given_for_each_data_set(folder):
    data = prepare(folder, dataset="questions,more", max_samples=[10, 2])
    assert [report.read for report in data.report.sets] == [10, 2]
    assert "max_samples: only the first 10, 2 rows of each data set" in data.report.render()
    data = prepare(folder, dataset="questions", eval_dataset="more", max_samples=[10, 1])
    assert [report.read for report in data.report.sets] == [10, 1]


def test_rows_that_are_used_several_times_are_on_one_side_of_val_size_and_evaluated_once(folder):
    info = {"questions": {"file_name": "questions.json", "num_samples": 100}}
    data = prepare(folder, dataset_info=info, val_size=10)
    held_back = [row["row_id"] for row in data.evals["validation"]]
    assert len(held_back) == len(set(held_back)) == 10
    assert not set(held_back) & set(rows_of(data))
    assert set(Counter(rows_of(data)).values()) <= {2, 3}
    assert "questions: 30 rows available, 30 used" in data.report.render()


def test_a_data_set_named_twice_is_refused(folder):
    with pytest.raises(DataError, match=r"dataset names questions more than once.*num_samples"):
        prepare(folder, dataset="questions,more,questions")
    with pytest.raises(DataError, match=r"both read \S*questions\.json"):
        prepare(folder, dataset=f"questions,{folder / 'questions.json'}", val_size=0.5)


def test_rows_that_teach_nothing_are_an_error(tmp_path):
    rows = stored_rows(tmp_path / "rows.arrow", [[(0, [5, 6], []), (1, [7], [(0, 1)])]])
    with pytest.raises(DataError, match="Not one token to train on is left of 2 rows"):
        _check_trained(ExampleDataset([Part(rows, 0)]), "train on")


@pytest.mark.processes
def test_worker_processes_give_the_same_rows_in_the_same_order(folder):
    alone = prepare(folder)
    several = prepare(folder, preprocessing_num_workers=2, preprocessing_batch_size=3, overwrite_cache=True)
    assert len(alone.train) == len(several.train)
    for one, other in zip(alone.train, several.train, strict=True):
        assert np.array_equal(one["input_ids"], other["input_ids"])
        assert np.array_equal(one["trained_spans"], other["trained_spans"])
        assert one["row_id"] == other["row_id"]
    assert alone.report == several.report


def test_half_a_character_drops_its_row_alone(folder):
    write_rows(folder / "cut.json", [*QUESTIONS[:3], {"instruction": "Hi \ud83d", "output": "Hello"}])
    data = prepare(folder, dataset="cut.json")
    assert data.report.sets[0].dropped == {"half of a character": 1}
    assert len(data.train) == 3


def test_rows_that_no_limit_fits_say_to_raise_it(folder):
    with pytest.raises(DataError, match=r"40 rows were dropped:\n  longer than cutoff_len.*\nRaise cutoff_len"):
        prepare(folder, cutoff_len=8)


def test_max_samples_may_be_beyond_what_a_machine_counts(folder):
    assert len(prepare(folder, max_samples=10**30).train) == len(QUESTIONS)
