import numpy as np
import pytest

from tests.unit.data.examples import example
from tunesmith.data.collators import build_collator

N = -100
PAD = -8


def test_rows_are_filled_up_on_the_right_to_the_longest():
    batch = build_collator("padded", pad_token_id=PAD)(
        [example([5, 6, 7], [(1, 3)], row_id=7), example([8, 9], [(1, 2)], row_id=9)]
    )
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 9, PAD]]
    assert batch["labels"].tolist() == [[N, 6, 7], [N, 9, N]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch["row_ids"].tolist() == [7, 9]
    assert "position_ids" not in batch
    assert "cu_seq_lens_q" not in batch


def test_a_real_token_that_equals_the_pad_token_is_neither_masked_nor_unlearnt():
    batch = build_collator("padded", pad_token_id=2)([example([5, 2], [(1, 2)]), example([2, 2, 2], [(0, 3)])])
    assert batch["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch["labels"].tolist() == [[N, 2, N], [N, 2, 2]]


@pytest.mark.parametrize(("multiple", "length"), [(None, 5), (4, 8), (5, 5)])
def test_the_length_is_rounded_up_to_a_multiple(multiple, length):
    batch = build_collator("padded", pad_token_id=PAD, pad_to_multiple_of=multiple)([example([1, 2, 3, 4, 5])])
    assert batch["input_ids"].shape == (1, length)
    assert int(batch["attention_mask"].sum()) == 5


def test_padding_is_learnt_when_it_is_asked_for():
    collate = build_collator("padded", pad_token_id=PAD, ignore_pad_token_for_loss=False)
    batch = collate([example([5, 6], [(1, 2)]), example([7, 8, 9, 3], [(2, 4)])])
    assert batch["labels"].tolist() == [[N, 6, PAD, PAD], [N, N, 9, 3]]


def test_packed_rows_restart_their_positions_and_have_no_mask():
    batch = build_collator("padded", pad_token_id=PAD, pad_to_multiple_of=8)(
        [
            [example([5, 6, 7], [(0, 3)], 1), example([8, 9], [(0, 2)], 2)],
            [example([3, 4, 5, 6], [(2, 4)], 3)],
        ]
    )
    assert "attention_mask" not in batch
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8, 9, PAD, PAD, PAD], [3, 4, 5, 6, PAD, PAD, PAD, PAD]]
    assert batch["labels"].tolist() == [[N, 6, 7, N, 9, N, N, N], [N, N, 5, 6, N, N, N, N]]
    # the padding is one more sample, apart from the last real one
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1, 0, 1, 2], [0, 1, 2, 3, 0, 1, 2, 3]]
    assert batch["row_ids"].tolist() == [1, 2, 3]


def test_a_single_row_beside_a_packed_one_is_laid_out_as_packed():
    batch = build_collator("padded", pad_token_id=PAD)([[example([5, 6]), example([7])], example([8, 9])])
    assert "attention_mask" not in batch
    assert batch["position_ids"].tolist() == [[0, 1, 0], [0, 1, 0]]


def slow_line(pack, length, pad, *, learns_padding):
    """Ids and labels of a line, token by token."""
    ids, labels = [], []
    for sample in pack:
        spans = sample["trained_spans"].reshape(-1, 2).tolist()
        for place, token in enumerate(sample["input_ids"].tolist()):
            is_learnt = place > 0 and any(first <= place < end for first, end in spans)
            ids.append(token)
            labels.append(token if is_learnt else N)
    rest = length - len(ids)
    return ids + [pad] * rest, labels + [pad if learns_padding else N] * rest


@pytest.mark.parametrize("learns_padding", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_any_rows_are_laid_out_as_token_by_token(seed, learns_padding):
    rng = np.random.default_rng(seed)

    def draw(row):
        size = int(rng.integers(1, 30))
        borders = np.sort(rng.choice(size + 1, size=2 * int(rng.integers(0, 4)), replace=True)).reshape(-1, 2)
        return example(rng.integers(0, 32000, size).tolist(), borders.tolist(), row)

    rows = [draw(row) if seed % 2 else [draw(row), draw(row + 50)] for row in range(int(rng.integers(1, 9)))]
    packs = [row if isinstance(row, list) else [row] for row in rows]
    batch = build_collator("padded", pad_token_id=PAD, ignore_pad_token_for_loss=not learns_padding)(rows)
    length = max(sum(len(sample["input_ids"]) for sample in pack) for pack in packs)
    expected = [slow_line(pack, length, PAD, learns_padding=learns_padding) for pack in packs]
    assert batch["input_ids"].tolist() == [ids for ids, _ in expected]
    assert batch["labels"].tolist() == [labels for _, labels in expected]
    if seed % 2:
        assert batch["attention_mask"].sum(dim=1).tolist() == [len(row["input_ids"]) for row in rows]
    flat = build_collator("flat", pad_token_id=PAD)(rows)
    whole = [sample for pack in packs for sample in pack]
    ids, labels = slow_line(whole, sum(len(sample["input_ids"]) for sample in whole), PAD, learns_padding=False)
    assert (flat["input_ids"].tolist(), flat["labels"].tolist()) == ([ids], [labels])
