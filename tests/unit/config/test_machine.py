import sys

import pytest

from tunesmith.config.machine import find_machine


def make(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


@pytest.mark.parametrize(
    ("name", "accelerator", "has_gpu"),
    [
        ("proc/driver/nvidia/gpus/0000:01:00.0", "nvidia", True),
        ("dev/nvidia0", "nvidia", True),
        ("dev/dxg", "nvidia", True),
        ("dev/kfd", "amd", True),
        ("dev/davinci0", "ascend", False),
    ],
)
def test_device_files_tell_the_accelerator(tmp_path, name, accelerator, has_gpu):
    make(tmp_path, name)
    machine = find_machine({}, tmp_path)
    assert (machine.accelerator, machine.has_gpu) == (accelerator, has_gpu)


@pytest.mark.parametrize(
    ("name", "variable", "value"),
    [
        ("dev/nvidia0", "CUDA_VISIBLE_DEVICES", ""),
        ("dev/nvidia0", "CUDA_VISIBLE_DEVICES", "-1"),
        ("dev/nvidia0", "NVIDIA_VISIBLE_DEVICES", "void"),
        ("dev/kfd", "HIP_VISIBLE_DEVICES", "-1"),
    ],
)
def test_a_hidden_gpu_is_none_and_the_reason_says_so(tmp_path, name, variable, value):
    make(tmp_path, name)
    machine = find_machine({variable: value}, tmp_path)
    assert machine.accelerator == "none"
    assert machine.reason == f"{variable} is '{value}', which hides the GPU"


def test_a_visible_gpu_is_seen(tmp_path):
    make(tmp_path, "dev/nvidia0")
    assert find_machine({"CUDA_VISIBLE_DEVICES": "0,1"}, tmp_path).has_gpu


@pytest.mark.parametrize(("machine", "accelerator"), [("arm64", "apple"), ("x86_64", "none")])
def test_a_mac_has_its_own(tmp_path, monkeypatch, machine, accelerator):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert find_machine({}, tmp_path).accelerator == accelerator


def test_control_files_alone_are_no_gpu(tmp_path):
    make(tmp_path, "dev/nvidiactl")
    assert find_machine({}, tmp_path).accelerator == "none"
