import pytest

from tunesmith.runtime.ranks import Ranks
from tunesmith.training.io import bounds, planning
from tunesmith.training.io.bounds import FileNeed, Machine
from tunesmith.training.io.planning import find_loading_notes
from tunesmith.training.io.settings import LoaderPolicy, LoaderSettings
from tunesmith.training.io.token_batches import TokenBatches


@pytest.fixture
def machine(monkeypatch):
    def have(free_bytes=64 << 30, allowed=4096):
        limit = bounds.OpenFileLimit(allowed, allowed)
        monkeypatch.setattr(planning, "measure_files", lambda: FileNeed(100, limit))
        monkeypatch.setattr(Machine, "measured", lambda ranks: Machine(8.0, free_bytes, ranks.local_world_size))

    return have


def notes_for(workers, processes=1, batches=None, num_batches=100):
    policy = LoaderPolicy(start=LoaderSettings(workers))
    return list(find_loading_notes(policy, Ranks(0, 0, processes, processes), batches, num_batches))


def test_what_there_is_room_for_needs_no_note(machine):
    machine()
    assert notes_for(8) == []
    assert notes_for(0) == []


def test_workers_that_were_asked_for_and_may_not_fit_are_commented_on(machine):
    machine(free_bytes=2 << 30)
    (note,) = notes_for(8)
    assert note.startswith("8 workers may be too many for the memory: 200 MiB for each worker, 2.0 GiB free.")
    assert notes_for(5) == []
    assert notes_for(2, processes=2) == []
    assert len(notes_for(3, processes=2)) == 1


def test_more_workers_than_processors_or_batches_are_commented_on(machine):
    machine()
    assert notes_for(9) == ["9 workers share 8 processors: so many help only where they wait for a disk or a network."]
    assert notes_for(5, processes=2)[0].startswith("5 workers of each process share 4 processors: ")
    assert notes_for(4, num_batches=3) == [
        "4 workers are more than the 3 micro-batches of an epoch: some have nothing to do."
    ]


def test_too_few_open_files_are_commented_on(machine):
    machine(allowed=256)
    (note,) = notes_for(8)
    assert "and 256 are allowed" in note


def test_rows_beyond_the_token_budget_are_counted(machine):
    machine()
    (note,) = notes_for(0, batches=TokenBatches([10, 70, 80], 64))
    assert note.startswith("2 rows are longer than `tokens_per_device_batch`")
