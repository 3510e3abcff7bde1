import json

import pytest

from tests.tiny.checkpoints import DAMAGES, remove_manifest
from tests.tiny.checkpoints import write_checkpoint as write
from tunesmith.errors import CheckpointError
from tunesmith.training.checkpoints import (
    check_checkpoint,
    checkpoint_path,
    find_checkpoints,
    rotate_checkpoints,
    start_checkpoint,
)


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
