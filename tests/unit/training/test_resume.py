import logging
from dataclasses import replace

import pytest

from tests.tiny.checkpoints import DAMAGES, ORDER, remove_manifest, spoil_size
from tests.tiny.checkpoints import write_checkpoint as write
from tunesmith.errors import CheckpointError
from tunesmith.training.checkpoints import RowOrder
from tunesmith.training.resume import check_row_order, find_run_id, resolve_resume_point, save_run_id


@pytest.mark.parametrize(("damage", "words"), DAMAGES)
def test_a_damaged_checkpoint_that_was_named_is_refused(tmp_path, damage, words):
    final = write(tmp_path, 4)
    damage(final)
    with pytest.raises(CheckpointError, match=f"resume_from_checkpoint: .*{words}.*Set it to true"):
        resolve_resume_point(str(final), tmp_path)


@pytest.mark.parametrize(("damage", "words"), DAMAGES)
def test_true_takes_the_newest_whole_one_and_says_what_it_skipped(tmp_path, caplog, damage, words):
    write(tmp_path, 4)
    write(tmp_path, 20)
    damage(write(tmp_path, 100))
    with caplog.at_level(logging.INFO, logger="tunesmith"):
        point = resolve_resume_point(setting=True, output_dir=tmp_path)
    assert point.manifest.step == 20
    assert words in caplog.text
    assert "checkpoint-100" in caplog.text
    assert "Resuming from" in caplog.text


def test_no_whole_checkpoint_is_an_error_that_lists_all_once(tmp_path, caplog):
    spoil_size(write(tmp_path, 1))
    remove_manifest(write(tmp_path, 2))
    with pytest.raises(CheckpointError, match=r"(?s)no checkpoint in .* can be resumed:.*checkpoint-2.*checkpoint-1"):
        resolve_resume_point(setting=True, output_dir=tmp_path)
    assert caplog.messages == []


def test_true_without_any_checkpoint_starts_at_the_beginning_and_says_so(tmp_path, caplog):
    assert resolve_resume_point(setting=True, output_dir=tmp_path / "new") is None
    assert "starting at the beginning" in caplog.text


@pytest.mark.parametrize("setting", [None, False])
def test_not_resuming_looks_at_nothing(tmp_path, setting):
    remove_manifest(write(tmp_path, 2))
    assert resolve_resume_point(setting, tmp_path) is None


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(CheckpointError, match="there is no folder"):
        resolve_resume_point(str(tmp_path / "nowhere"), tmp_path)


def test_weights_alone_cannot_be_resumed(tmp_path):
    final = write(tmp_path, 2, is_resumable=False)
    with pytest.raises(CheckpointError, match=r"weights alone.*adapter_name_or_path"):
        resolve_resume_point(str(final), tmp_path)


def test_a_folder_of_weights_alone_says_once_how_to_use_them(tmp_path, caplog):
    for step in (1, 2, 3):
        write(tmp_path, step, is_resumable=False)
    with pytest.raises(CheckpointError) as caught:
        resolve_resume_point(setting=True, output_dir=tmp_path)
    message = str(caught.value)
    assert message.count("holds the weights alone") == 3
    assert message.count("adapter_name_or_path") == 1
    assert caplog.messages == []


def test_checkpoints_of_an_older_run_in_the_same_folder_are_left_alone(tmp_path, caplog):
    write(tmp_path, 6, run_id="older")
    save_run_id(tmp_path, "newer")
    for step in (2, 4):
        write(tmp_path, step, run_id="newer")
    with caplog.at_level(logging.INFO, logger="tunesmith"):
        point = resolve_resume_point(setting=True, output_dir=tmp_path)
    assert point.path == tmp_path / "checkpoint-4"
    assert f"{tmp_path / 'checkpoint-6'} belongs to another run" in caplog.text


def test_a_run_without_checkpoints_of_its_own_starts_at_the_beginning(tmp_path, caplog):
    write(tmp_path, 6, run_id="older")
    save_run_id(tmp_path, "newer")
    assert resolve_resume_point(setting=True, output_dir=tmp_path) is None
    assert "no checkpoint of the last run started here: starting at the beginning" in caplog.text


def test_a_checkpoint_of_another_run_can_be_named(tmp_path):
    final = write(tmp_path, 6, run_id="older")
    save_run_id(tmp_path, "newer")
    assert resolve_resume_point(str(final), tmp_path).manifest.run_id == "older"


def test_a_folder_that_names_no_run_takes_the_newest_of_any(tmp_path):
    write(tmp_path, 2, run_id="one")
    write(tmp_path, 4, run_id="other")
    assert find_run_id(tmp_path) is None
    assert resolve_resume_point(setting=True, output_dir=tmp_path).manifest.step == 4


def test_another_order_of_rows_is_refused_with_what_changed(tmp_path):
    point = resolve_resume_point(str(write(tmp_path, 2)), tmp_path)
    check_row_order(point, ORDER)
    changed = RowOrder(**{**ORDER.to_dict(), "num_processes": 2, "seed": 4})
    with pytest.raises(CheckpointError, match=r"(?s)num_processes was 1 and is 2.*seed was 3 and is 4\nSet them"):
        check_row_order(point, changed)


def test_rows_of_another_file_or_column_are_told_by_their_tokens(tmp_path):
    point = resolve_resume_point(str(write(tmp_path, 2)), tmp_path)
    changed = replace(ORDER, num_tokens=51)
    with pytest.raises(CheckpointError, match=r"num_tokens was 50 and is 51\nA file of a data set, or its entry in"):
        check_row_order(point, changed)
