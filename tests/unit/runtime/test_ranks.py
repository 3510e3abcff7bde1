import pytest

from tunesmith.errors import ConfigError
from tunesmith.runtime import ranks as ranks_module
from tunesmith.runtime.ranks import Ranks, current_ranks, leave_error_to_main_process


def test_a_process_that_torchrun_did_not_start_is_the_only_one():
    assert current_ranks({}) == Ranks(rank=0, local_rank=0, world_size=1, local_world_size=1)


def test_ranks_are_read_from_the_environment_of_torchrun():
    environ = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}
    ranks = current_ranks(environ)
    assert ranks == Ranks(rank=5, local_rank=1, world_size=8, local_world_size=4)
    assert not ranks.is_main
    assert not ranks.is_local_main


def test_the_first_process_of_another_machine_is_local_main_only():
    ranks = current_ranks({"RANK": "4", "LOCAL_RANK": "0", "WORLD_SIZE": "8"})
    assert ranks.is_local_main
    assert not ranks.is_main


def test_a_rank_that_is_not_a_number_names_the_variable_and_its_value():
    with pytest.raises(ConfigError, match=r"RANK is 'first', but it must be a whole number"):
        current_ranks({"RANK": "first"})


@pytest.mark.parametrize(("rank", "waits"), [(0, []), (1, [7.0])])
def test_only_other_processes_wait_for_the_main_one_to_show_an_error(monkeypatch, rank, waits):
    waited = []
    monkeypatch.setattr(ranks_module.time, "sleep", waited.append)
    leave_error_to_main_process(Ranks(rank=rank, world_size=2), wait_seconds=7.0)
    assert waited == waits
