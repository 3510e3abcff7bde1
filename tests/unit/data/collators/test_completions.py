import numpy as np
import pytest
import torch

from tests.unit.data.examples import pair
from tunesmith.data.batches import LOSS_KEYS
from tunesmith.data.collators import build_collator
from tunesmith.data.collators.completions import split_pair

PAD = -8
# Prompts of 2, 3 and 1 tokens; the second pair's completions have an unlearnt token in the middle.
PAIRS = [
    pair([1, 2], [3, 4], [5], row_id=7, signal=0.5),
    pair([10, 11, 12], [13, 14, 15], [16, 17, 18, 19], spans=[(3, 4), (5, 6), (6, 8), (9, 10)], row_id=9),
    pair([30], [31], [32, 33], row_id=4),
]


def collator(layout, kind="pairs", **options):
    return build_collator(layout, kind=kind, pad_token_id=PAD, **options)


def predictions(batch):
    """What the batch says, slowly: (sequence, ids up to and with the position that predicts, label)."""
    ids, sequences = batch["input_ids"].flatten(), batch["completion_sequences"].tolist()
    places = zip(sequences, batch["completion_positions"].tolist(), batch["completion_labels"].tolist(), strict=True)
    return [(sequence, int(ids[position]), label) for sequence, position, label in places]


EXPECTED = [
    *((0, 2, 3), (0, 3, 4), (1, 2, 5)),
    *((2, 12, 13), (2, 14, 15), (3, 12, 16), (3, 16, 17), (3, 18, 19)),
    *((4, 30, 31), (5, 30, 32), (5, 32, 33)),
]
LAST = [4, 5, 15, 19, 31, 33]


def test_a_pair_becomes_two_sequences_with_the_whole_prompt():
    chosen, rejected = split_pair(PAIRS[1])
    assert chosen["input_ids"].tolist() == [10, 11, 12, 13, 14, 15]
    assert chosen["trained_spans"].tolist() == [3, 4, 5, 6]
    assert rejected["input_ids"].tolist() == [10, 11, 12, 16, 17, 18, 19]
    assert rejected["trained_spans"].tolist() == [3, 5, 6, 7]


def test_padded_pairs_stand_chosen_first_and_are_padded_to_the_batch():
    batch = collator("padded")(PAIRS)
    assert batch["input_ids"].tolist()[:3] == [
        [1, 2, 3, 4, PAD, PAD, PAD],
        [1, 2, 5, PAD, PAD, PAD, PAD],
        [10, 11, 12, 13, 14, 15, PAD],
    ]
    assert batch["attention_mask"].sum(dim=1).tolist() == [4, 3, 6, 7, 2, 3]
    assert batch["labels"][1].tolist() == [-100, -100, 5, -100, -100, -100, -100]


def test_flat_pairs_stand_end_to_end_with_borders():
    batch = collator("flat")(PAIRS)
    assert batch["input_ids"].shape == (1, 25)
    assert batch["cu_seq_lens_q"].tolist() == [0, 4, 7, 13, 20, 22, 25]


@pytest.mark.parametrize("layout", ["padded", "flat"])
@pytest.mark.parametrize("rows", [PAIRS, [PAIRS[:2], PAIRS[2:]], [[PAIRS[0]], PAIRS[1], [PAIRS[2]]]])
def test_every_layout_says_what_predicts_what(layout, rows):
    batch = collator(layout)(rows)
    assert predictions(batch) == EXPECTED
    assert batch["input_ids"].flatten()[batch["last_positions"]].tolist() == LAST
    assert batch["signals"].tolist() == [0.5, 0.0, 0.0]
    assert batch["item_weights"].tolist() == [1.0, 1.0, 1.0]
    assert batch["row_ids"].tolist() == [7, 9, 4]


def test_packed_pairs_stay_in_their_row_and_positions_restart():
    batch = collator("padded")([PAIRS[:2], PAIRS[2:]])
    assert batch["input_ids"].shape == (2, 20)
    assert batch["position_ids"][0].tolist() == [*range(4), *range(3), *range(6), *range(7)]
    assert "attention_mask" not in batch


def test_a_filler_counts_for_nothing():
    silent = {**PAIRS[0], "trained_spans": np.zeros(0, dtype=np.int32)}
    batch = collator("padded")([silent])
    assert batch["item_weights"].tolist() == [0.0]
    assert batch["completion_positions"].numel() == batch["completion_labels"].numel() == 0
    assert batch["completion_labels"].dtype == torch.int64
    assert len(batch["last_positions"]) == 2


def test_a_completion_that_begins_the_row_loses_its_first_token():
    batch = collator("padded")([{**PAIRS[2], "trained_spans": np.array([0, 2, 2, 4], dtype=np.int32)}])
    assert predictions(batch)[0] == (0, 30, 31)


def test_reference_values_follow_the_order_of_sequences():
    rows = [{**row, "reference_log_probabilities": np.array([-n, -n - 0.5])} for n, row in enumerate(PAIRS)]
    batch = collator("flat")(rows)
    assert batch["reference_log_probabilities"].tolist() == [0.0, -0.5, -1.0, -1.5, -2.0, -2.5]
    feedback = collator("flat", "feedback")(rows)
    assert feedback["reference_log_probabilities"].tolist() == [0.0, -1.0, -2.0]
    assert feedback["mismatched"]["reference_log_probabilities"].tolist() == [-0.5, -1.5, -2.5]


@pytest.mark.parametrize("layout", ["padded", "flat"])
@pytest.mark.parametrize("rows", [PAIRS, [PAIRS[:2], PAIRS[2:]]])
def test_feedback_keeps_the_mismatched_completions_apart(layout, rows):
    batch = collator(layout, "feedback")(rows)
    own, other = predictions(batch), predictions(batch["mismatched"])
    assert own == [(number // 2, *rest) for number, *rest in EXPECTED if number % 2 == 0]
    assert other == [(number // 2, *rest) for number, *rest in EXPECTED if number % 2 == 1]
    assert batch["signals"].tolist() == [0.5, 0.0, 0.0]


def test_only_known_keys_are_added():
    plain = set(build_collator("padded", pad_token_id=PAD)([split_pair(PAIRS[0])[0]]))
    assert set(collator("padded", "feedback")(PAIRS)) - plain <= set(LOSS_KEYS)
