import os

import pytest

from tunesmith.data.streaming import contents
from tunesmith.data.streaming.contents import describe_file, modification_time


def written(path, content):
    path.write_bytes(content)
    return describe_file(path)


def test_a_small_file_counts_with_every_byte(tmp_path):
    first = written(tmp_path / "a.jsonl", b"x" * 999)
    assert first[:2] == ["a.jsonl", 999]
    for place in (0, 500, 998):
        changed = b"x" * place + b"y" + b"x" * (998 - place)
        assert written(tmp_path / "a.jsonl", changed) != first
        os.utime(tmp_path / "a.jsonl", ns=(place, place))
    assert written(tmp_path / "a.jsonl", b"x" * 999) == first
    assert written(tmp_path / "empty.jsonl", b"")[1] == 0


@pytest.mark.parametrize(("place", "is_seen"), [(0, True), (39, True), (999, True), (960, True), (50, False)])
def test_a_large_file_counts_with_pieces_from_start_to_end(tmp_path, monkeypatch, place, is_seen):
    monkeypatch.setattr(contents, "_WHOLE_BYTES", 500)
    monkeypatch.setattr(contents, "_PIECE_BYTES", 40)
    before = written(tmp_path / "a.txt", b"x" * 1000)
    after = written(tmp_path / "b.txt", b"x" * place + b"y" + b"x" * (999 - place))
    assert (before[2] != after[2]) is is_seen  # pieces begin at 0, 64, 128 ... 960


def test_the_time_of_a_file_is_known_on_this_disk(tmp_path):
    path = tmp_path / "a.txt"
    path.touch()
    os.utime(path, ns=(5, 7))
    assert modification_time(path) == 7
