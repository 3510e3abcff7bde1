import pytest

from tests.unit.data.stored import stored_rows
from tunesmith.config.loading import LoadingConfig
from tunesmith.data.collators import build_collator
from tunesmith.data.loading.datasets import ExampleDataset, Part
from tunesmith.data.loading.loader import build_loader
from tunesmith.data.loading.samplers import build_sampler


@pytest.fixture
def dataset(tmp_path):
    rows = [(at, [at + 1] * (at + 1), [(0, at + 1)]) for at in range(5)]
    return ExampleDataset([Part(stored_rows(tmp_path / "rows.arrow", [rows]), 0)])


def row_ids(loader):
    return [batch["row_ids"].tolist() for batch in loader]


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.processes)])
def test_micro_batches_come_in_the_order_of_the_sampler(dataset, workers):
    sampler = build_sampler("random", dataset.lengths, batch_size=2, seed=3)
    loading = LoadingConfig(dataloader_num_workers=workers, dataloader_pin_memory=False)
    loader = build_loader(dataset, build_collator("flat", pad_token_id=0), loading, batch_size=2, sampler=sampler)
    order = sampler.order().tolist()
    assert row_ids(loader) == [order[:2], order[2:4], order[4:]]


def test_the_incomplete_last_batch_is_left_out_only_when_asked_for(dataset):
    collate = build_collator("padded", pad_token_id=0)
    dropping = LoadingConfig(dataloader_drop_last=True, dataloader_pin_memory=False)
    assert row_ids(build_loader(dataset, collate, dropping, batch_size=2)) == [[0, 1], [2, 3]]
    assert row_ids(build_loader(dataset, collate, dropping, batch_size=2, drop_last=False))[-1] == [4]
