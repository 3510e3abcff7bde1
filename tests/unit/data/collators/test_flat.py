import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.data.examples import example
from tunesmith.data.collators import build_collator

N = -100


def test_rows_stand_end_to_end_with_restarting_positions_and_borders():
    batch = build_collator("flat", pad_token_id=-8)(
        [example([5, 6, 7], [(1, 3)], row_id=41), example([8, 9, 3, 4], [(1, 2), (3, 4)], row_id=42)]
    )
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8, 9, 3, 4]]
    assert batch["labels"].tolist() == [[N, 6, 7, N, 9, N, 4]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1, 2, 3]]
    assert batch["cu_seq_lens_q"].tolist() == [0, 3, 7]
    assert batch["cu_seq_lens_q"].dtype == torch.int32
    assert batch["cu_seq_lens_k"] is batch["cu_seq_lens_q"]
    assert (batch["max_length_q"], batch["max_length_k"]) == (4, 4)
    assert type(batch["max_length_q"]) is int
    assert batch["row_ids"].tolist() == [41, 42]
    assert "attention_mask" not in batch
    assert {batch[key].dtype for key in ("input_ids", "labels", "position_ids", "row_ids")} == {torch.int64}


def test_the_first_token_of_a_sample_is_never_the_target_of_the_sample_before():
    batch = build_collator("flat", pad_token_id=-8)([example([5, 6], [(0, 2)]), example([7, 8], [(0, 2)])])
    assert batch["labels"].tolist() == [[N, 6, N, 8]]


def test_a_packed_row_gives_the_batch_of_its_samples():
    first, second, third = (
        example([5, 6], [(1, 2)]),
        example([7, 8, 9], [(2, 3)], 1),
        example([4, 3], [(1, 2)], 2),
    )
    collate = build_collator("flat", pad_token_id=-8)
    packed, single = collate([[first, second], third]), collate([first, second, third])
    for key, value in single.items():
        assert torch.equal(torch.as_tensor(packed[key]), torch.as_tensor(value)), key


rows = st.lists(
    st.integers(1, 12).flatmap(
        lambda size: st.lists(st.booleans(), min_size=size, max_size=size).map(
            lambda trained: ([100 + at for at in range(size)], trained)
        )
    ),
    min_size=1,
    max_size=6,
)


def spans_of(trained):
    padded = [False, *trained, False]
    starts = [at for at in range(len(trained)) if padded[at + 1] and not padded[at]]
    ends = [at + 1 for at in range(len(trained)) if padded[at + 1] and not padded[at + 2]]
    return list(zip(starts, ends, strict=True))


@given(rows=rows)
@settings(deadline=None)
def test_labels_after_the_shift_are_the_same_in_both_layouts(rows):
    samples = [example(ids, spans_of(trained)) for ids, trained in rows]
    expected = [ids[at] for ids, trained in rows for at in range(1, len(ids)) if trained[at]]
    for layout in ("flat", "padded"):
        batch = build_collator(layout, pad_token_id=-8)(samples)
        targets = batch["labels"][:, 1:]
        assert targets[targets != N].tolist() == expected


def test_padding_to_a_multiple_is_refused_where_nothing_is_padded():
    with pytest.raises(ValueError, match="pad_to_multiple_of is 8, but the flat layout has no padding"):
        build_collator("flat", pad_token_id=0, pad_to_multiple_of=8)
