import torch

from tunesmith.objectives.positions import count_predictions, find_predictions

_ = -100


def test_a_label_is_predicted_by_the_position_before_it():
    batch = {"labels": torch.tensor([[_, _, 7, _, 9]])}
    found = find_predictions(batch)
    assert found.positions.tolist() == [1, 3]
    assert found.labels.tolist() == [7, 9]
    assert count_predictions(batch).item() == 2


def test_positions_count_through_the_rows_of_a_padded_batch():
    batch = {"labels": torch.tensor([[_, 5, _], [_, _, 6]])}
    found = find_predictions(batch)
    assert found.positions.tolist() == [0, 4]
    assert found.labels.tolist() == [5, 6]


def test_the_first_token_of_a_row_is_never_predicted():
    batch = {"labels": torch.tensor([[4, 5]])}
    assert find_predictions(batch).labels.tolist() == [5]


def test_the_first_token_of_a_sample_is_not_predicted_by_the_sample_before_it():
    labels = torch.tensor([[1, 2, 3, 4, 5, 6]])
    positions = torch.tensor([[0, 1, 2, 0, 0, 1]])
    borders = torch.tensor([0, 3, 4, 6], dtype=torch.int32)
    for extra in ({"position_ids": positions}, {"cu_seq_lens_q": borders}):
        found = find_predictions({"labels": labels, **extra})
        assert found.positions.tolist() == [0, 1, 4]
        assert found.labels.tolist() == [2, 3, 6]
        assert count_predictions({"labels": labels, **extra}).item() == 3


def test_a_batch_without_labels_has_no_pairs():
    batch = {"labels": torch.full((2, 3), _)}
    assert find_predictions(batch).positions.shape == (0,)
    assert count_predictions(batch).item() == 0


def test_one_token_rows_have_no_pairs():
    assert count_predictions({"labels": torch.tensor([[3]])}).item() == 0
