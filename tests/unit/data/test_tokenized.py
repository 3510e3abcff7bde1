import json
import shutil

import pytest

from tests.unit.data.runs import question, small_run, write_sets
from tunesmith.data.inspection.preview import DroppedPreview, build_previews
from tunesmith.data.tokenized import LIST_FILE
from tunesmith.errors import DataError
from tunesmith.runtime.ranks import Ranks


@pytest.fixture
def folder(tmp_path):
    write_sets(tmp_path, {"sums": [question(number) for number in range(6)] + [{"instruction": "?"}]})
    return tmp_path


def run_in(folder, **settings):
    return small_run(folder, "sums", **{"tokenized_path": str(folder / "made"), "bad_rows": "skip", **settings})


def ids_of(data):
    return [example["input_ids"].tolist() for example in data.train]


def test_an_empty_folder_is_filled_and_then_used_without_the_raw_files(folder):
    made = run_in(folder).prepare()
    assert not (folder / "cache").exists()
    (folder / "sums.jsonl").unlink()
    (folder / "dataset_info.json").unlink()
    used = run_in(folder).prepare()
    assert ids_of(used) == ids_of(made)
    assert used.report.to_dict() == made.report.to_dict()
    assert used.describe_row(2) == made.describe_row(2)


def test_a_moved_folder_is_as_good(folder, tmp_path):
    made = run_in(folder).prepare()
    shutil.move(folder / "made", folder / "elsewhere")
    used = run_in(folder, tokenized_path=str(folder / "elsewhere")).prepare()
    assert ids_of(used) == ids_of(made)


@pytest.mark.parametrize(
    ("settings", "difference"),
    [
        ({"cutoff_len": 64}, "cutoff_len was 2048 and is 64"),
        ({"train_on_prompt": True}, "train_on_prompt was false and is true"),
        ({"packing": True}, "packing was false and is true"),
        ({"max_samples": 3}, "max_samples was null and is 3"),
        ({"template": "llama3"}, "the chat template was "),
        ({"default_system": "Be brief."}, "the chat template was "),
        ({"eval_dataset": "sums", "do_eval": True}, r"eval_dataset was \[\] and is \[\"sums\"\]"),
    ],
)
def test_other_settings_are_refused_with_the_difference(folder, settings, difference):
    run_in(folder).prepare()
    with pytest.raises(DataError, match=f"was prepared with other settings:\n  {difference}"):
        run_in(folder, **settings).prepare()


def test_what_was_prepared_to_look_at_all_rows_serves_a_run_that_stops_for_bad_ones(folder):
    (folder / "dataset_info.json").write_text('{"sums": {"file_name": "sums.jsonl", "split": "train[:6]"}}')
    made = run_in(folder, bad_rows="skip").prepare()
    assert ids_of(run_in(folder, bad_rows="error").prepare()) == ids_of(made)


def test_a_run_stops_for_bad_rows_that_were_left_out_when_they_were_prepared(folder):
    run_in(folder, bad_rows="skip").prepare()
    with pytest.raises(DataError, match=r"no answer, 1 row: sums\.jsonl row 7: column 'output' is missing"):
        run_in(folder, bad_rows="error").prepare()


def test_other_columns_are_refused_where_the_catalogue_is_at_hand(folder):
    run_in(folder).prepare()
    (folder / "dataset_info.json").write_text('{"sums": {"file_name": "sums.jsonl", "columns": {"response": "input"}}}')
    with pytest.raises(DataError, match=r'dataset_info.sums.columns was null and is \{"response": "input"\}'):
        run_in(folder).prepare()


def test_another_tokenizer_is_refused(folder):
    run_in(folder).prepare()
    other = run_in(folder)
    other.tokenizer.add_tokens(["<new>"])
    with pytest.raises(DataError, match="the tokenizer was "):
        other.prepare()


def test_files_that_have_changed_are_refused(folder):
    run_in(folder).prepare()
    write_sets(folder, {"sums": [question(9)]})
    with pytest.raises(DataError, match=r"was prepared of another .*sums\.jsonl"):
        run_in(folder).prepare()


def test_overwriting_replaces_what_is_there(folder):
    run_in(folder).prepare()
    other = run_in(folder, cutoff_len=64, overwrite_cache=True).prepare()
    assert len(list((folder / "made").glob("*.arrow"))) == 1
    assert ids_of(run_in(folder, cutoff_len=64).prepare()) == ids_of(other)


def test_a_folder_of_somebody_else_is_left_alone(folder):
    (folder / "made").mkdir()
    (folder / "made" / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match=r"holds thesis\.txt and no prepared\.json"):
        run_in(folder).prepare()


def test_a_preparation_that_was_stopped_is_taken_up_again(folder):
    run_in(folder).prepare()
    (folder / "made" / LIST_FILE).unlink()
    assert len(run_in(folder).prepare().train) == 6
    assert (folder / "made" / LIST_FILE).is_file()


@pytest.mark.parametrize(("content", "message"), [("{", "cannot be read as JSON"), ('{"format": 9}', "is of format 9")])
def test_a_list_that_cannot_be_read_is_an_error(folder, content, message):
    run_in(folder).prepare()
    (folder / "made" / LIST_FILE).write_text(content)
    with pytest.raises(DataError, match=message):
        run_in(folder).prepare()


def test_damaged_rows_are_an_error_and_not_made_again(folder):
    run_in(folder).prepare()
    (rows,) = (folder / "made").glob("*.arrow")
    rows.write_bytes(rows.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"\(tokenized_path\) is damaged"):
        run_in(folder).prepare()


def test_rows_of_another_version_are_used_with_a_warning(folder, caplog):
    run_in(folder).prepare()
    path = folder / "made" / LIST_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": "0.0.1"}))
    assert len(run_in(folder).prepare().train) == 6
    assert "was written by version 0.0.1" in caplog.text


def test_the_first_process_alone_writes_the_list(folder):
    run = run_in(folder)
    from tunesmith.data.pipeline import prepare_data

    prepare_data(run.config, run.tokenizer, run.template, Ranks(1, 0, 2, 1))
    assert not (folder / "made" / LIST_FILE).exists()


def test_a_preview_works_with_and_without_the_raw_files(folder):
    run_in(folder).prepare()
    run = run_in(folder)
    kept, dropped = build_previews(run.prepare(), [6, 0], run.config, run.tokenizer, run.preparation)[::-1]
    assert kept.samples[0].source.values == question(0)
    assert isinstance(dropped, DroppedPreview)
    (folder / "sums.jsonl").unlink()
    (alone,) = build_previews(run.prepare(), [6, 0], run.config, run.tokenizer, run.preparation)
    assert alone.samples[0].source is None
