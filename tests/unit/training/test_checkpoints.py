import json

import pytest

from tests.tiny.checkpoints import DAMAGES, remove_manifest
from tests.tiny.checkpoints import write_checkpoint as write
from tunesmith.errors import CheckpointError
from tunesmith.training.checkpoints import (
    check_checkpoint,
    checkpoint_path,
    find_checkpoints,
    remove_unfinished,
    restore_replaced,
    rotate_checkpoints,
    start_checkpoint,
)
from tunesmith.training.resume import resolve_resume_point


def test_a_finished_checkpoint_is_whole_and_nothing_is_left_beside_it(tmp_path):
    final = write(tmp_path, 4)
    manifest = check_checkpoint(final)
    assert manifest.step == 4
    assert set(manifest.files) == {"model.safetensors", "deep/state.pt"}
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-4"]


def test_an_unfinished_checkpoint_does_not_exist(tmp_path):
    staging = start_checkpoint(checkpoint_path(tmp_path, 4))
    (staging / "model.safetensors").write_text("half")
    assert find_checkpoints(tmp_path) == []
    write(tmp_path, 4)
    check_checkpoint(checkpoint_path(tmp_path, 4))


def test_writing_a_step_again_replaces_it(tmp_path):
    write(tmp_path, 4, content="old")
    final = write(tmp_path, 4, content="new")
    check_checkpoint(final)
    assert (final / "model.safetensors").read_text() == "new"


@pytest.mark.parametrize(("damage", "words"), DAMAGES)
def test_damage_is_named(tmp_path, damage, words):
    final = write(tmp_path, 4)
    damage(final)
    with pytest.raises(CheckpointError, match=words):
        check_checkpoint(final)


def test_a_checkpoint_that_was_being_replaced_when_its_process_died_comes_back(tmp_path):
    final = write(tmp_path, 4, content="old")
    final.rename(tmp_path / ".checkpoint-4.replaced")  # between the two renames
    start_checkpoint(final)
    point = resolve_resume_point(setting=True, output_dir=tmp_path)
    assert point.path == final
    assert (final / "model.safetensors").read_text() == "old"


def test_the_old_one_stays_away_where_the_new_one_is_in_its_place(tmp_path):
    write(tmp_path, 4, content="old").rename(tmp_path / ".checkpoint-4.replaced")
    final = write(tmp_path, 4, content="new")
    restore_replaced(tmp_path)
    assert (final / "model.safetensors").read_text() == "new"


def test_what_killed_processes_left_is_removed_and_nothing_else(tmp_path):
    write(tmp_path, 2)
    start_checkpoint(checkpoint_path(tmp_path, 4))
    write(tmp_path, 3).rename(tmp_path / ".checkpoint-3.replaced")
    (tmp_path / ".incomplete-77").mkdir()
    (tmp_path / ".run.yaml.incomplete-77").write_text("stage")
    (tmp_path / ".run_id").write_text("abc")
    (tmp_path / ".rows.arrow.incomplete-host-77").write_text("another run's rows, which it is still writing")
    (tmp_path / "incomplete-77").write_text("somebody's notes")
    remove_unfinished(tmp_path)
    assert names(tmp_path) == [".rows.arrow.incomplete-host-77", ".run_id", "checkpoint-2", "incomplete-77"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_rotation_keeps_the_newest_of_the_limit(tmp_path):
    for step in (8, 9, 10, 11):  # by number, not by name
        write(tmp_path, step)
    rotate_checkpoints(tmp_path, 2, run_id="mine", best=None)
    assert names(tmp_path) == ["checkpoint-10", "checkpoint-11"]


def test_rotation_never_removes_the_best(tmp_path):
    for step in (1, 2, 3):
        write(tmp_path, step)
    rotate_checkpoints(tmp_path, 1, run_id="mine", best=str(tmp_path / "checkpoint-1"))
    assert names(tmp_path) == ["checkpoint-1", "checkpoint-3"]


def test_rotation_never_removes_checkpoints_of_other_runs_or_unreadable_ones(tmp_path):
    write(tmp_path, 1, run_id="theirs")
    remove_manifest(write(tmp_path, 2))
    for step in (3, 4):
        write(tmp_path, step)
    rotate_checkpoints(tmp_path, 1, run_id="mine", best=None)
    assert names(tmp_path) == ["checkpoint-1", "checkpoint-2", "checkpoint-4"]


def test_no_limit_removes_nothing(tmp_path):
    for step in (1, 2):
        write(tmp_path, step)
    assert rotate_checkpoints(tmp_path, None, run_id="mine", best=None) == []
    assert names(tmp_path) == ["checkpoint-1", "checkpoint-2"]


def test_manifest_is_plain_json(tmp_path):
    content = json.loads((write(tmp_path, 4) / "manifest.json").read_text())
    assert content["order"]["per_device_train_batch_size"] == 2
    assert content["files"]["deep/state.pt"]["bytes"] == 5
