import numpy as np
import pytest

from tests.unit.data.stored import stored_rows
from tunesmith.config.loading import LoadingConfig
from tunesmith.data.loading.datasets import ExampleDataset, PackedDataset, Part
from tunesmith.data.packing import Packs
from tunesmith.training.io.settings import LoaderSettings, describe_rows_of, resolve_policy


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Four rows from source rows 1, 3, 5 and 7 of a data set that begins at 100, none of which may be read."""
    stored = stored_rows(tmp_path / "rows.arrow", [[(number, [1, 2], [(0, 2)]) for number in (1, 3, 5, 7)]])

    def refuse(*_):
        raise AssertionError("a row was read only to tell where it comes from")

    monkeypatch.setattr(ExampleDataset, "__getitem__", refuse)
    return ExampleDataset([Part(stored, 100)])


def test_a_row_is_told_without_reading_it(rows):
    describe = describe_rows_of(rows.select(np.array([2, 0])), "source row {}".format)
    assert [describe(0), describe(1)] == ["source row 105", "source row 101"]


def test_a_packed_row_is_told_by_its_first_sample(rows):
    packs = PackedDataset(rows, Packs.of_whole_rows([[3, 1], [0]], rows.lengths))
    describe = describe_rows_of(packs, "source row {}".format)
    assert describe(0) == "source row 107 (first of 2 in a packed row)"
    assert describe(1) == "source row 101 (first of 1 in a packed row)"


def test_what_is_not_said_is_found_out():
    policy = resolve_policy(LoadingConfig(), "cuda")
    assert (policy.start, policy.tunes_workers, policy.tunes_prefetch) == (LoaderSettings(0, 2), True, True)
    assert policy.pins_memory
    assert policy.keeps_workers
    assert not resolve_policy(LoadingConfig(), "cpu").pins_memory


def test_what_is_said_is_obeyed():
    loading = LoadingConfig(
        dataloader_num_workers=3,
        dataloader_prefetch_factor=5,
        dataloader_pin_memory=False,
        dataloader_persistent_workers=False,
        dataloader_restarts=7,
        data_timeout_seconds=0,
    )
    policy = resolve_policy(loading, "cuda")
    assert policy.start == LoaderSettings(3, 5)
    assert not any([policy.tunes, policy.pins_memory, policy.keeps_workers])
    assert (policy.max_restarts, policy.timeout_seconds) == (7, None)
    # Without workers there is nothing to make ahead.
    assert not resolve_policy(LoadingConfig(dataloader_num_workers=0), "cpu").tunes
