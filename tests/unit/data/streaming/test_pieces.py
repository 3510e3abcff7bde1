import pickle
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.data.streaming.files import rows_of, text_spec, write_file
from tests.unit.data.streaming.sources import items_of, text_source
from tunesmith.data.loading.attempts import Failure
from tunesmith.data.streaming import shuffling
from tunesmith.data.streaming.mixing import Mixing
from tunesmith.errors import DataError


@pytest.fixture
def spec(tmp_path):
    return text_spec(write_file(tmp_path / "a.jsonl", rows_of(9), kind=".jsonl"))


def queue_of(source):
    return source.open(0, 1)._queue


def ids_of(piece):
    return [row.row_id for row in piece]


def test_pieces_end_with_their_window_and_an_epoch_with_a_piece_without_rows(spec):
    queue = queue_of(text_source(spec, buffer_size=7, window_rows=4, piece_rows=3))
    sizes = [len(queue[position]) for position in range(9)]
    assert sizes == [3, 1, 3, 2, 0, 3, 1, 3, 2]  # blocks of 7 and 2, windows of 4, 3 and 2
    pieces = [queue.pop(position) for position in range(9)]
    assert [piece.is_last for piece in pieces] == [False, True, True, True, True, False, True, True, True]
    assert [piece.ends_epoch for piece in pieces] == [False] * 4 + [True] + [False] * 4
    assert not any(piece.ends_stream for piece in pieces)
    assert [piece.progress for piece in pieces[4:6]] == [1, pytest.approx(1.7, abs=0.1)]


def test_behind_the_last_epoch_pieces_say_so_for_ever(spec):
    queue = queue_of(text_source(spec, epochs=1, is_shuffled=False))
    assert [len(queue[position]) for position in (0, 1, 2, 3, 4, 5, 9)] == [3, 1, 3, 1, 1, 0, 0]
    assert queue.pop(9).ends_stream


def test_a_piece_can_be_asked_for_until_it_is_taken_out(spec):
    queue = queue_of(text_source(spec))
    first = ids_of(queue[0])
    later = ids_of(queue[5])
    assert ids_of(queue[0]) == first
    queue.pop(0)
    assert ids_of(queue[5]) == later
    with pytest.raises(KeyError):
        queue[0]


def test_reading_that_fails_once_goes_on_with_the_very_same_rows(spec, monkeypatch):
    source = text_source(spec, buffer_size=4)
    whole = [ids_of(queue_of(source)[position]) for position in range(9)]
    broken = [2, 3]  # the second block cannot be read at once, nor at the second attempt
    take = shuffling.ShuffledRows._fill

    def fill(rows):
        if broken and rows._block_start["drawn"] == 4 and broken.pop():
            raise DataError("the network is gone") from OSError("gone")
        take(rows)

    monkeypatch.setattr(shuffling.ShuffledRows, "_fill", fill)
    queue = queue_of(source)
    failure = queue[2]
    assert isinstance(failure, Failure)
    assert not failure.is_final
    assert ids_of(queue[1]) == whole[1]  # what was read before is there
    assert queue[3] is failure  # what comes behind is not tried
    assert isinstance(queue[2], Failure)
    assert [ids_of(queue[position]) for position in range(9)] == whole


def test_what_could_not_be_read_is_an_error_where_nobody_tries_again(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text\none\n")
    source = text_source(text_spec(path))
    path.write_text('text\n"one"two\n')
    with pytest.raises(DataError, match=r"a\.csv: line 2: not valid CSV"):
        items_of(source.open(0, 1), 1)


def test_what_cannot_be_encoded_is_told_once_the_rows_before_it_were_given_out(tmp_path):
    path = write_file(tmp_path / "a.jsonl", rows_of(6), kind=".jsonl")
    with path.open("a") as file:
        file.write("{nothing\n")
    stream = text_source(text_spec(path, bad_rows="error"), is_shuffled=False, window_rows=3).open(0, 1)
    assert len(items_of(stream, 6)) == 6
    for _ in range(2):
        with pytest.raises(DataError, match=r"malformed row: a\.jsonl line 7: column 2 is not valid JSON"):
            stream.next_item()


def ahead_by(choose, encoder):
    """Have pieces encoded ahead and in any order, as workers do: what goes there and comes back is copied."""

    def open_pieces(queue):
        done, asked = {}, 0

        def take(position):
            nonlocal asked
            wanted = max(asked, position + 1 + choose())
            new = [(number, queue[number]) for number in range(asked, wanted)]
            random.Random(position).shuffle(new)
            done.update((number, encoder.encode(pickle.loads(pickle.dumps(piece)))) for number, piece in new)
            asked = wanted
            return pickle.loads(pickle.dumps(done.pop(position)))

        return take

    return open_pieces


@pytest.fixture(scope="module")
def sets():
    with TemporaryDirectory() as folder:
        sizes = {"a": ((11, ".jsonl"), (7, ".parquet")), "b": ((9, ".csv"), (3, ".txt"))}
        yield [
            text_spec(
                *[
                    write_file(Path(folder) / f"{name}{number}{kind}", rows_of(count), kind=kind)
                    for number, (count, kind) in enumerate(files)
                ],
                name=name,
            )
            for name, files in sizes.items()
        ]


@settings(max_examples=15, deadline=None, database=None)
@given(data=st.data())
def test_the_order_does_not_depend_on_who_encodes_nor_on_how_far_ahead(sets, data):
    source = text_source(
        *sets,
        packing=data.draw(st.sampled_from(["none", "whole", "cut"])),
        mixing=Mixing(data.draw(st.sampled_from(["concat", "interleave_under", "interleave_over", "interleave_once"]))),
        is_shuffled=data.draw(st.booleans()),
        buffer_size=data.draw(st.integers(1, 20)),
        window_rows=data.draw(st.integers(1, 8)),
        piece_rows=data.draw(st.integers(1, 9)),
        epochs=data.draw(st.sampled_from([None, 2])),
    )
    process, processes = data.draw(st.sampled_from([(0, 1), (1, 2)]))
    plain = source.open(process, processes)
    whole, state, progress = items_of(plain, 40), plain.state(), plain.progress
    rng = random.Random(data.draw(st.integers(0, 999)))
    open_pieces = ahead_by(lambda: rng.choice([0, 1, 2, 3, 7]), source.encoder)
    stop = data.draw(st.integers(0, 40))
    stream = source.open(process, processes, open_pieces)
    begun = items_of(stream, stop)
    other = source.open(process, processes, open_pieces)
    other.load(stream.state())
    assert begun + items_of(other, 40 - len(begun)) == whole
    assert (other.state()["rows"], other.progress, other.tallies) == (state["rows"], progress, plain.tallies)
