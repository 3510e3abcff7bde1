import signal

import pytest
import torch.distributed.run

from tests.tiny.runs import tiny_run, write_dataset, write_model
from tunesmith.errors import ConfigError
from tunesmith.training import launch as launching
from tunesmith.training.launch import LaunchPlan, find_launch_plan, run_processes


def test_one_device_goes_on_in_this_process():
    assert find_launch_plan({}, num_devices=1) is None
    assert find_launch_plan({}, num_devices=0) is None


def test_several_devices_get_a_process_each():
    plan = find_launch_plan({}, num_devices=4)
    assert plan.num_processes == 4
    assert plan.main_port > 0


@pytest.mark.parametrize("value", ["1", "true", "Y"])
def test_torchrun_can_be_forced(value):
    assert find_launch_plan({"FORCE_TORCHRUN": value}, num_devices=1).num_processes == 1


def test_false_forces_nothing():
    assert find_launch_plan({"FORCE_TORCHRUN": "false"}, num_devices=1) is None


def test_the_number_of_processes_can_be_chosen():
    assert find_launch_plan({"NPROC_PER_NODE": "2"}, num_devices=0).num_processes == 2
    assert find_launch_plan({"NPROC_PER_NODE": "1"}, num_devices=4) is None


@pytest.mark.parametrize("variable", ["TORCHELASTIC_RUN_ID", "WORLD_SIZE"])
def test_a_process_of_torchrun_starts_no_others(variable):
    assert find_launch_plan({variable: "2", "FORCE_TORCHRUN": "1"}, num_devices=4) is None


def test_several_machines_need_a_common_port():
    environ = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1"}
    with pytest.raises(ConfigError, match="MASTER_PORT is not set"):
        find_launch_plan(environ, num_devices=8)
    plan = find_launch_plan({**environ, "MASTER_PORT": "29500"}, num_devices=8)
    assert plan.torchrun_arguments() == [
        "--nnodes=2",
        "--nproc-per-node=8",
        "--node-rank=1",
        "--master-addr=10.0.0.1",
        "--master-port=29500",
    ]


def test_elastic_runs_meet_at_a_rendezvous():
    environ = {
        "RDZV_ID": "job7",
        "MIN_NNODES": "1",
        "MAX_NNODES": "3",
        "MAX_RESTARTS": "2",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
    }
    assert find_launch_plan(environ, num_devices=8).torchrun_arguments() == [
        "--nnodes=1:3",
        "--nproc-per-node=8",
        "--rdzv-backend=c10d",
        "--rdzv-id=job7",
        "--rdzv-endpoint=10.0.0.1:29500",
        "--max-restarts=2",
    ]


def test_a_number_that_is_none_is_named():
    with pytest.raises(ConfigError, match="NPROC_PER_NODE is 'all'"):
        find_launch_plan({"NPROC_PER_NODE": "all"}, num_devices=2)


def test_words_with_spaces_stay_whole(monkeypatch):
    seen = []
    monkeypatch.setattr(torch.distributed.run, "run", seen.append)
    assert run_processes(LaunchPlan(2, main_port=5), ["run.yaml", "default_system=You are nice"]) == 0
    assert seen[0].module
    assert seen[0].training_script == "tunesmith.cli.main"
    assert seen[0].training_script_args == ["train", "run.yaml", "default_system=You are nice"]
    assert seen[0].nproc_per_node == "2"


@pytest.mark.parametrize(("handler", "heeds"), [(signal.SIG_IGN, False), (signal.SIG_DFL, True)])
def test_torchrun_leaves_a_closed_terminal_to_nohup(monkeypatch, handler, heeds):
    seen = []
    monkeypatch.setattr(torch.distributed.run, "run", seen.append)
    before = signal.signal(signal.SIGHUP, handler)
    try:
        run_processes(LaunchPlan(2, main_port=5), ["run.yaml"])
    finally:
        signal.signal(signal.SIGHUP, before)
    assert ("SIGHUP" in seen[0].signals_to_handle.split(",")) == heeds


@pytest.mark.processes
def test_a_command_line_trains_in_two_processes(tmp_path, monkeypatch):
    write_model(tmp_path / "model")
    write_dataset(tmp_path / "data")
    monkeypatch.setenv("NPROC_PER_NODE", "2")
    config = tiny_run(tmp_path, max_steps=2)
    (tmp_path / "run.yaml").write_text(config.to_yaml(), encoding="utf-8")
    assert launching.launch(config, [str(tmp_path / "run.yaml")]) == 0
    assert (tmp_path / "out" / "adapter_model.safetensors").is_file()
    assert (tmp_path / "out" / "train_results.json").is_file()


@pytest.mark.processes
def test_the_exit_code_is_that_of_the_process_that_failed(tmp_path, capfd):
    plan = LaunchPlan(2, main_port=launching._free_port())
    assert run_processes(plan, [str(tmp_path / "missing.yaml")]) == ConfigError.exit_code
    shown = capfd.readouterr().err
    assert shown.count("there is no such file") == 1  # not by each process
    assert "Traceback" not in shown
