import io
import json

import pytest
from safetensors import SafetensorError

from tunesmith.errors import CheckpointError, ConfigError
from tunesmith.runtime import files
from tunesmith.runtime.files import (
    atomic_directory,
    atomic_file,
    atomic_files,
    check_writable,
    explain_failed_writes,
    file_digest,
    write_json_atomic,
    write_text_atomic,
)


def test_text_is_written_as_utf8_into_a_new_folder(tmp_path):
    file = tmp_path / "new" / "text.txt"
    write_text_atomic(file, "你好\n")
    assert file.read_bytes() == b"\xe4\xbd\xa0\xe5\xa5\xbd\n"
    assert list(file.parent.iterdir()) == [file]


def test_json_keeps_characters_readable(tmp_path):
    file = tmp_path / "value.json"
    write_json_atomic(file, {"name": "你"})
    assert file.read_text(encoding="utf-8") == '{\n  "name": "你"\n}\n'
    assert json.loads(file.read_text(encoding="utf-8")) == {"name": "你"}


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_text_atomic(file, "half \ud800 a character")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_appears_when_the_block_ends(tmp_path):
    final = tmp_path / "deep" / "folder"
    with atomic_directory(final) as place:
        (place / "sub").mkdir()
        (place / "sub" / "file").write_text("content")
        (place / "link").symlink_to("sub/file")
        assert not final.exists()
    assert (final / "sub" / "file").read_text() == "content"
    assert (final / "link").read_text() == "content"
    assert [entry.name for entry in final.parent.iterdir()] == ["folder"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_folder_does_not_exist_when_the_block_fails(tmp_path, error):
    def fill_half() -> None:
        with atomic_directory(tmp_path / "folder") as place:
            (place / "file").write_text("half")
            raise error

    with pytest.raises(error):
        fill_half()
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_refused_before_any_work(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileExistsError, match="exists already"), atomic_directory(tmp_path / "folder"):
        pytest.fail("the block must not run")


def test_a_folder_that_appears_meanwhile_is_not_overwritten(tmp_path):
    final = tmp_path / "folder"
    with pytest.raises(FileExistsError, match="exists already"), atomic_directory(final):
        final.mkdir()
    assert list(tmp_path.iterdir()) == [final]


def test_an_existing_folder_is_replaced_whole_when_asked(tmp_path):
    final = tmp_path / "folder"
    final.mkdir()
    (final / "old").write_text("old")
    with atomic_directory(final, overwrite=True) as place:
        (place / "new").write_text("new")
        assert (final / "old").read_text() == "old"
    assert [entry.name for entry in final.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [final]


def test_the_digest_is_the_sha256_of_the_bytes(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    assert file_digest(file) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_files_join_a_folder_in_use_when_the_block_ends(tmp_path):
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "model").write_text("old")
    with atomic_files(tmp_path) as beside:
        (beside / "model").write_text("new")
        (beside / "sub").mkdir()
        (beside / "sub" / "file").write_text("content")
        assert (tmp_path / "model").read_text() == "old"
    assert {path.name: path.read_text() for path in tmp_path.iterdir() if path.is_file()} == {
        "kept": "kept",
        "model": "new",
    }
    assert (tmp_path / "sub" / "file").read_text() == "content"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "model", "sub"]


def test_a_folder_in_use_is_untouched_when_the_block_fails(tmp_path):
    (tmp_path / "model").write_text("old")

    def fill_half() -> None:
        with atomic_files(tmp_path) as beside:
            (beside / "model").write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill_half()
    assert (tmp_path / "model").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_file_is_replaced_when_the_block_ends(tmp_path):
    file = tmp_path / "picture.png"
    file.write_bytes(b"old")
    with atomic_file(file) as beside:
        beside.write_bytes(b"new")
        assert file.read_bytes() == b"old"
    assert file.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_can_be_made_is_writable_and_is_not_made(tmp_path):
    check_writable(tmp_path / "new" / "run", "output_dir")
    check_writable(tmp_path, "output_dir")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_place_that_takes_no_files_is_named_with_its_setting(tmp_path, name):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ConfigError, match=r"^output_dir: `output_dir` is '.*', and nothing can be written to .*: "
    ) as e:
        check_writable(tmp_path / name, "output_dir")
    assert str(e.value).endswith("Name another folder.")


def test_a_full_disk_is_found_before_anything_is_done(tmp_path, monkeypatch):
    class Full(io.BytesIO):
        def write(self, content):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.tempfile, "TemporaryFile", lambda **_: Full())
    pattern = (
        r"nothing can be written to .*: No space left on device \(.*iB are free in .*\)\. Make room there, or name"
    )
    with pytest.raises(ConfigError, match=pattern):
        check_writable(tmp_path / "run", "output_dir")


@pytest.mark.parametrize(
    "failure",
    [
        OSError(28, "No space left on device"),
        SafetensorError("I/O error: No space left on device (os error 28)"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 19584 vs 19472"),
    ],
)
def test_whoever_fails_to_write_the_message_says_where_and_what_to_do(failure):
    with (
        pytest.raises(CheckpointError, match=r"^checkpoint-3 cannot be written.*\. Make room\.$"),
        explain_failed_writes("checkpoint-3", CheckpointError, "Make room."),
    ):
        raise failure


def test_a_full_disk_is_said_with_the_room_there_is_and_the_room_it_takes(tmp_path):
    with (
        pytest.raises(CheckpointError, match=r"No space left on device \(it takes about 2\.0 MiB, and .* are free in"),
        explain_failed_writes(tmp_path / "checkpoint-3", CheckpointError, "Make room.", needed_bytes=2**21),
    ):
        raise OSError(28, "No space left on device")


def test_a_file_that_could_not_be_written_is_named(tmp_path):
    with pytest.raises(OSError, match="No space") as caught, atomic_file(tmp_path / "run.yaml"):
        raise OSError(28, "No space left on device")
    assert caught.value.filename == str(tmp_path / "run.yaml")


def test_other_failures_pass_unchanged():
    with pytest.raises(RuntimeError, match=r"^shapes differ$"), explain_failed_writes("x", CheckpointError, "y"):
        raise RuntimeError("shapes differ")
