import json
import logging

import pytest

from tunesmith.errors import CheckpointError
from tunesmith.training.checkpoints import (
    RowOrder,
    check_checkpoint,
    checkpoint_path,
    find_checkpoints,
    finish_checkpoint,
    rotate_checkpoints,
    start_checkpoint,
)
from tunesmith.training.resume import check_row_order, resolve_resume_point

ORDER = RowOrder(
    num_rows=10,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=1,
    num_processes=1,
    seed=3,
    strategy="random",
    drop_last=False,
)


def write(folder, step, *, run_id="mine", is_resumable=True, content="weights"):
    final = checkpoint_path(folder, step)
    staging = start_checkpoint(final)
    (staging / "model.safetensors").write_text(content)
    (staging / "deep").mkdir()
    (staging / "deep" / "state.pt").write_text("state")
    finish_checkpoint(final, run_id=run_id, step=step, order=ORDER, is_resumable=is_resumable)
    return final


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


def spoil_size(final):
    (final / "model.safetensors").write_text("short")


def spoil_content(final):
    (final / "model.safetensors").write_text("WEIGHTS")


def remove_file(final):
    (final / "deep" / "state.pt").unlink()


def remove_manifest(final):
    (final / "manifest.json").unlink()


def cut_manifest(final):
    (final / "manifest.json").write_text('{"run_id": "mi')


DAMAGES = [
    (spoil_size, "model.safetensors has 5 bytes where 7 were written"),
    (spoil_content, "the content of model.safetensors is not what was written"),
    (remove_file, "deep/state.pt is missing"),
    (remove_manifest, "has no manifest.json"),
    (cut_manifest, "cannot be read"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGES)
def test_damage_is_named(tmp_path, damage, words):
    final = write(tmp_path, 4)
    damage(final)
    with pytest.raises(CheckpointError, match=words):
        check_checkpoint(final)
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


def test_no_whole_checkpoint_is_an_error_that_lists_all(tmp_path):
    spoil_size(write(tmp_path, 1))
    remove_manifest(write(tmp_path, 2))
    with pytest.raises(CheckpointError, match=r"(?s)no checkpoint in .* is whole:.*checkpoint-2.*checkpoint-1"):
        resolve_resume_point(setting=True, output_dir=tmp_path)


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


def test_another_order_of_rows_is_refused_with_what_changed(tmp_path):
    point = resolve_resume_point(str(write(tmp_path, 2)), tmp_path)
    check_row_order(point, ORDER)
    changed = RowOrder(**{**ORDER.to_dict(), "num_processes": 2, "seed": 4})
    with pytest.raises(CheckpointError, match=r"(?s)num_processes was 1 and is 2.*seed was 3 and is 4"):
        check_row_order(point, changed)


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
