import pickle

import numpy as np
import pytest

from tests.unit.data.stored import stored_pairs
from tunesmith.data.loading.datasets import ExampleDataset, PackedDataset, Part
from tunesmith.data.loading.feedback import FeedbackDataset, find_partners, note_one_sided
from tunesmith.data.packing import Packs
from tunesmith.errors import DataError

# Prompts 1 1 1 / 2 2 / 3, with completions of 2, 4, 1 and 3 tokens; the last two have the same prompt.
ROWS = [
    ([1, 1, 1], [10, 11], 1.0),
    ([2, 2], [20, 21, 22, 23], 0.0),
    ([3], [30], 0.0),
    ([3], [40, 41, 42], 1.0),
]


@pytest.fixture
def rows(tmp_path):
    stored = stored_pairs(tmp_path / "rows.arrow", ROWS)
    return ExampleDataset([Part(stored, 100)])


def test_each_row_gets_the_completion_of_the_row_half_the_set_away(rows):
    found = FeedbackDataset(rows, cutoff_len=64)[0]
    assert found["input_ids"].tolist() == [1, 1, 1, 10, 11, 30]
    assert found["trained_spans"].tolist() == [3, 5, 5, 6]
    assert (found["prompt_end"], found["chosen_end"], found["signal"], found["row_id"]) == (3, 5, 1.0, 100)


def test_a_mismatched_completion_is_cut_to_the_room_that_its_new_prompt_leaves(rows):
    found = FeedbackDataset(rows, cutoff_len=3)[3]  # gets the completion of row 1
    assert found["input_ids"].tolist() == [3, 40, 41, 42, 20, 21]
    assert found["trained_spans"].tolist() == [1, 4, 4, 6]


def test_lengths_are_those_of_the_longer_sequence(rows):
    assert FeedbackDataset(rows, cutoff_len=64).lengths.tolist() == [5, 6, 3, 5]
    assert FeedbackDataset(rows, cutoff_len=4).lengths[3] == 4


def test_packs_keep_rows_whole(rows):
    dataset = FeedbackDataset(rows, cutoff_len=64)
    packed = PackedDataset(dataset, Packs.of_whole_rows([[0, 2], [1, 3]], dataset.lengths))
    assert [row["input_ids"].tolist() for row in packed[0]] == [dataset[n]["input_ids"].tolist() for n in (0, 2)]
    assert packed.lengths.tolist() == [8, 11]


def test_rows_of_both_kinds_are_counted(rows):
    dataset = FeedbackDataset(rows, cutoff_len=64)
    assert (dataset.num_desirable, len(dataset), dataset.row_ids.tolist()) == (2, 4, [100, 101, 102, 103])


def test_completions_that_are_all_rated_alike_are_told(tmp_path, rows, caplog):
    note_one_sided(FeedbackDataset(rows, cutoff_len=64))
    assert not caplog.text
    for verdict, word in ((1.0, "desirable"), (0.0, "undesirable")):
        stored = stored_pairs(tmp_path / f"{word}.arrow", [(prompt, answer, verdict) for prompt, answer, _ in ROWS])
        note_one_sided(FeedbackDataset(ExampleDataset([Part(stored, 100)]), cutoff_len=64))
        assert f"All 4 rated completions are {word}, so the run" in caplog.text


def test_data_sets_travel_to_workers(rows):
    dataset = FeedbackDataset(rows, cutoff_len=64)
    copied = pickle.loads(pickle.dumps(dataset))
    for row in range(4):
        assert dataset[row]["input_ids"].tolist() == copied[row]["input_ids"].tolist()


def test_partners_have_another_prompt_where_there_is_one():
    assert find_partners([1, 2, 3, 4]).tolist() == [2, 3, 0, 1]
    assert find_partners([1, 1, 1, 2]).tolist() == [3, 3, 3, 1]
    assert find_partners([5, 5]).tolist() == [1, 0]
    many = find_partners(np.arange(101) // 2)
    assert all(many[row] // 2 != row // 2 for row in range(101))


def test_a_single_row_has_no_partner(rows):
    with pytest.raises(DataError, match="Only one rated completion is left"):
        FeedbackDataset(rows.select(np.array([1])), cutoff_len=64)
