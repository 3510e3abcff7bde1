import errno
from pathlib import Path

import pytest

from tunesmith.runtime.disk import free_bytes, name_failed_file, render_bytes, render_room


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0.0 KiB"), (3000, "2.9 KiB"), (2**20, "1.0 MiB"), (2**30 - 1, "1024.0 MiB"), (3 * 2**29, "1.5 GiB")],
)
def test_sizes_are_said_in_the_largest_unit_that_fits(num_bytes, text):
    assert render_bytes(num_bytes) == text


def test_the_room_is_that_of_the_nearest_folder_that_is_there(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("tunesmith.runtime.disk.free_bytes", lambda place: asked.append(place) or 3 * 2**20)
    assert render_room(tmp_path / "new" / "run") == f"3.0 MiB are free in {tmp_path}"
    (tmp_path / "file").touch()
    assert render_room(tmp_path / "file", 2**30) == f"it takes about 1.0 GiB, and 3.0 MiB are free in {tmp_path}"
    assert len(asked) == 2


def test_a_place_that_is_not_there_yet_has_the_room_of_its_disk(tmp_path):
    assert free_bytes(tmp_path / "new" / "run") > 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_full_disk_gets_the_name_of_the_file():
    with (
        pytest.raises(OSError, match="No space") as caught,
        name_failed_file("out/log"),
        Path("/dev/full").open("w") as file,
    ):
        file.write("x")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "out/log")


def test_an_error_that_names_its_file_keeps_it(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, name_failed_file("out/log"):
        (tmp_path / "none").open()
    assert caught.value.filename == str(tmp_path / "none")
