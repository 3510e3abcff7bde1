import pytest

from tunesmith.data.loading import room
from tunesmith.errors import DataError


@pytest.fixture
def mounts(tmp_path):
    (tmp_path / "memory").mkdir()
    (tmp_path / "disk").mkdir()
    file = tmp_path / "mounts"
    file.write_text(f"disk / ext4 rw 0 0\nshm {tmp_path / 'memory'} tmpfs rw 0 0\nproc /proc proc rw 0 0\n")
    return file


def test_the_kind_of_a_folder_is_that_of_the_mount_nearest_to_it(tmp_path, mounts):
    assert room.is_in_memory(tmp_path / "memory", mounts)
    assert room.is_in_memory(tmp_path / "memory" / "inner", mounts)
    assert not room.is_in_memory(tmp_path / "disk", mounts)
    assert not room.is_in_memory(tmp_path / "memory2", mounts)
    assert not room.is_in_memory(tmp_path, tmp_path / "no such file")


def test_data_that_does_not_fit_on_a_disk_is_refused(tmp_path, mounts):
    room.check_room(tmp_path / "disk", 10, mounts)
    with pytest.raises(DataError, match=r"needs about 1048576\.0 GiB, .* GiB free there.*dataset_cache_dir"):
        room.check_room(tmp_path / "disk", 2**50, mounts)


def test_a_folder_of_memory_may_take_what_the_run_can_spare(tmp_path, mounts, monkeypatch):
    monkeypatch.setattr(room, "available_memory_bytes", lambda: 1000 * 2**20)
    room.check_room(tmp_path / "memory", 800 * 2**20, mounts)
    with pytest.raises(DataError, match=r"needs about 801\.0 MiB, and there are 800\.0 MiB of memory to spare"):
        room.check_room(tmp_path / "memory", 801 * 2**20, mounts)
    monkeypatch.setattr(room, "available_memory_bytes", lambda: 100_000)
    with pytest.raises(DataError, match=r"needs about 97\.7 KiB, and there are 78\.1 KiB of memory to spare"):
        room.check_room(tmp_path / "memory", 100_000, mounts)
