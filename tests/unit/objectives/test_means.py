import pytest
import torch

from tunesmith.objectives.base import Mean
from tunesmith.objectives.means import RunningMeans, mean_tensors

CPU = torch.device("cpu")


def mean(total, count):
    return Mean(torch.tensor(total), torch.tensor(count))


def alone(values):
    return values


def test_totals_and_counts_are_added_up_and_divided_once():
    means = RunningMeans()
    means.add({"a": mean(6.0, 2), "b": mean(1.0, 1)})
    means.add({"a": mean(0.0, 4), "b": mean(5.0, 1)})
    assert means.close(alone, CPU) == {"a": 1.0, "b": 3.0}
    assert means.close(alone, CPU) == {}


def test_what_counted_nothing_has_no_mean():
    means = RunningMeans()
    means.add({"a": mean(0.0, 0), "b": mean(1.0, 1)})
    assert means.close(alone, CPU) == {"b": 1.0}


def test_objectives_without_means_add_nothing():
    means = RunningMeans()
    means.add({})
    assert means.close(lambda values: pytest.fail("nothing to add up"), CPU) == {}


def test_processes_are_added_up_before_the_division():
    means = RunningMeans()
    means.add({"a": mean(6.0, 2)})
    assert means.close(lambda values: values + torch.tensor([[4.0, 3.0]]), CPU) == {"a": 2.0}


def test_a_resumed_run_goes_on_adding():
    first, second = RunningMeans(), RunningMeans()
    second.load_state(first.state())
    assert second.close(alone, CPU) == {}
    first.add({"a": mean(6.0, 2)})
    second.load_state(first.state())
    second.add({"a": mean(0.0, 1)})
    assert second.close(alone, CPU) == {"a": 2.0}


def test_means_as_tensors():
    found = mean_tensors({"a": mean(6.0, 4), "b": mean(0.0, 0)}, alone, CPU)
    assert {name: value.item() for name, value in found.items()} == {"a": 1.5, "b": 0.0}
