import gc
import pickle

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from tunesmith.data.loading.transport import SLOT_BYTES, BatchSlots, SentBatch, receive


def test_a_small_batch_arrives_as_it_was_with_its_note():
    slots, borders = BatchSlots(1, 2), torch.tensor([0, 3], dtype=torch.int32)
    batch = {
        "input_ids": torch.arange(6).reshape(2, 3),
        "cu_seq_lens_q": borders,
        "cu_seq_lens_k": borders,
        "max_length_q": 3,
        "branch_lengths": ((1, 2, 3),),
        "mismatched": {"signals": torch.tensor([0.5]), "mask": torch.tensor([True, False])},
    }
    sent = slots.send(batch, 0, note={"place": 7})
    assert isinstance(sent, SentBatch)
    found, note = receive(sent)
    assert note == {"place": 7}
    assert found.keys() == batch.keys()
    assert found["input_ids"].equal(batch["input_ids"])
    assert found["cu_seq_lens_q"] is found["cu_seq_lens_k"]
    assert (found["max_length_q"], found["branch_lengths"]) == (3, ((1, 2, 3),))
    assert found["mismatched"]["signals"].equal(torch.tensor([0.5]))
    assert found["mismatched"]["mask"].dtype == torch.bool
    found["input_ids"][0, 0] = 9  # of its own memory, and written to as any batch


def test_a_batch_that_was_read_stays_when_its_slot_is_used_again():
    slots = BatchSlots(1, 1)
    first, _ = receive(slots.send({"ids": torch.tensor([1, 2])}, 0))
    places = [slots.send({"ids": torch.tensor([number, number])}, 0).start for number in range(4)]
    assert places == [SLOT_BYTES, 0, SLOT_BYTES, 0]
    assert first["ids"].tolist() == [1, 2]


@pytest.mark.parametrize(
    "batch",
    [
        {"pixels": torch.zeros(SLOT_BYTES // 4)},
        {"half": torch.zeros(SLOT_BYTES // 8), "and": torch.ones(SLOT_BYTES // 8)},
        {"pixels": torch.zeros(3, dtype=torch.bfloat16)},  # numpy has no such numbers
        {"weights": torch.zeros(3, requires_grad=True)},
        [1, 2],
    ],
)
def test_other_batches_go_as_pytorch_has_it(batch):
    sent = BatchSlots(1, 1).send(batch, 0, "note")
    assert receive(sent) == (batch, "note")
    assert receive(sent)[0] is batch


def test_workers_that_are_no_forks_send_as_pytorch_has_it():
    there = pickle.loads(pickle.dumps(BatchSlots(1, 1)))
    batch = {"ids": torch.tensor([1, 2])}
    assert there.send(batch, 0, "note") == (batch, "note")


def test_memory_that_cannot_be_had_is_done_without(monkeypatch):
    def refuse(*_):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("mmap.mmap", refuse)
    assert BatchSlots(64, 16).send({"ids": torch.tensor([1])}, 0)[1] is None


class Numbers(Dataset):
    def __init__(self, slots):
        self.slots = slots

    def __len__(self):
        return 60

    def __getitem__(self, row):
        size = 3000 + row  # more than a pipe takes at once
        return self.slots.send({"ids": torch.full((size,), row)}, get_worker_info().id, row)


@pytest.mark.processes
def test_batches_of_several_workers_never_meet_in_a_slot():
    loader = DataLoader(Numbers(BatchSlots(2, 3)), batch_size=None, num_workers=2, prefetch_factor=3)
    kept = [receive(sent) for sent in loader]
    for row, (batch, note) in enumerate(kept):
        assert note == row
        assert batch["ids"].tolist() == [row] * (3000 + row)


def test_the_memory_goes_with_its_loader():
    from tunesmith.data.loading import transport

    slots = BatchSlots(1, 1)
    number = slots._number
    assert number in transport._SLOTS
    del slots
    gc.collect()
    assert number not in transport._SLOTS
