import numpy as np
import pytest

from tests.unit.data.collators.test_completions import EXPECTED, LAST, PAD, PAIRS, collator, predictions
from tunesmith.data.batches import LOSS_KEYS
from tunesmith.data.collators import build_collator


@pytest.fixture
def shared():
    return build_collator("flat", kind="pairs", pad_token_id=PAD, shares_prompts=True)


def test_the_example_of_the_documentation(shared):
    batch = shared(PAIRS[:1])
    assert batch["input_ids"].tolist() == [[1, 2, 3, 4, 5]]
    assert batch["labels"].tolist() == [[-100, -100, 3, 4, 5]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 2]]
    assert batch["branch_lengths"] == ((2, 2, 1),)
    assert batch["completion_positions"].tolist() == [1, 2, 1]


@pytest.mark.parametrize("rows", [PAIRS, [PAIRS[:2], PAIRS[2:]], [[PAIRS[0]], PAIRS[1], [PAIRS[2]]]])
def test_the_same_is_predicted_from_the_same_as_without_sharing(shared, rows):
    batch = shared(rows)
    assert predictions(batch) == EXPECTED
    assert batch["input_ids"].flatten()[batch["last_positions"]].tolist() == LAST
    assert batch["input_ids"].shape == (1, 19)  # 25 where each prompt stands twice
    assert sum(sum(branch) for branch in batch["branch_lengths"]) == 19
    for key in ("signals", "item_weights", "row_ids"):
        assert batch[key].tolist() == collator("flat")(rows)[key].tolist()


def test_types_are_those_of_other_batches(shared):
    other, batch = collator("flat")(PAIRS), shared(PAIRS)
    for key in set(other) & set(batch):
        assert batch[key].dtype == other[key].dtype, key
    assert set(batch) - set(other) == {"branch_lengths"}
    assert "branch_lengths" not in LOSS_KEYS


def test_a_filler_counts_for_nothing(shared):
    batch = shared([{**PAIRS[0], "trained_spans": np.zeros(0, dtype=np.int32)}])
    assert batch["item_weights"].tolist() == [0.0]
    assert batch["completion_positions"].numel() == batch["completion_sequences"].numel() == 0


@pytest.mark.parametrize(("kind", "layout"), [("single", "flat"), ("feedback", "flat"), ("pairs", "padded")])
def test_other_rows_and_layouts_cannot_share_prompts(kind, layout):
    with pytest.raises(ValueError, match=f"not by {kind} rows in the {layout} one"):
        build_collator(layout, kind=kind, pad_token_id=PAD, shares_prompts=True)
