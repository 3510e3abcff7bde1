import pickle

import pytest
import torch

from tunesmith.data.loading.transport import VALUE_BYTES, SentBatch, pack_batch, unpack_batch


def sent(batch):
    """What arrives in another process."""
    return unpack_batch(pickle.loads(pickle.dumps(pack_batch(batch))))


def test_a_small_batch_arrives_as_it_was():
    borders = torch.tensor([0, 3], dtype=torch.int32)
    batch = {
        "input_ids": torch.arange(6).reshape(2, 3),
        "cu_seq_lens_q": borders,
        "cu_seq_lens_k": borders,
        "max_length_q": 3,
        "branch_lengths": ((1, 2, 3),),
        "mismatched": {"signals": torch.tensor([0.5]), "mask": torch.tensor([True, False])},
    }
    assert isinstance(pack_batch(batch), SentBatch)
    found = sent(batch)
    assert found.keys() == batch.keys()
    assert found["input_ids"].equal(batch["input_ids"])
    assert found["cu_seq_lens_q"] is found["cu_seq_lens_k"]
    assert (found["max_length_q"], found["branch_lengths"]) == (3, ((1, 2, 3),))
    assert found["mismatched"]["signals"].equal(torch.tensor([0.5]))
    assert found["mismatched"]["mask"].dtype == torch.bool
    found["input_ids"][0, 0] = 9  # it can be written to, as any batch


@pytest.mark.parametrize(
    "batch",
    [
        {"pixels": torch.zeros(VALUE_BYTES // 4 + 1)},
        {"pixels": torch.zeros(3, dtype=torch.bfloat16)},  # numpy has no such numbers
        {"weights": torch.zeros(3, requires_grad=True)},
        [1, 2],
    ],
)
def test_other_batches_go_as_pytorch_has_it(batch):
    assert pack_batch(batch) is batch
    assert unpack_batch(batch) is batch
