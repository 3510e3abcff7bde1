"""The device of these tests: a GPU, or the CPU for working on the tests themselves."""

import os

# Read by cuBLAS at the first product of the process; runs with `full_determinism` come later.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import pytest
import torch

from tests.tiny.runs import tiny_run, write_place


def pytest_addoption(parser):
    parser.addoption("--device", choices=("cuda", "cpu"), default="cuda", help="where tests/gpu run")


@pytest.fixture(scope="session")
def device(pytestconfig):
    """The device under test; the test is skipped where there is none."""
    # Where pytest was started on another folder, it read this file too late to learn of the option.
    chosen = pytestconfig.getoption("--device", default="cuda")
    if chosen == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch sees no GPU here (pytest tests/gpu --device=cpu runs what a CPU can)")
    return torch.device(chosen)


@pytest.fixture(scope="session")
def gpu(device):
    """The device, for what a CPU cannot do."""
    if device.type != "cuda":
        pytest.skip("this can only be seen on a GPU")
    return device


@pytest.fixture(scope="session")
def two_gpus(gpu):
    """Two GPUs of one machine."""
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs two GPUs, and torch sees {torch.cuda.device_count()}")
    return gpu


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A toy model and its data on disk."""
    return write_place(tmp_path_factory.mktemp("gpu"))


@pytest.fixture
def run_on_device(device, place, tmp_path):
    """Build the configuration of a short run on the device; its precision is left to the program."""

    def build(**settings):
        if settings.get("finetuning_type", "lora") != "lora":
            settings = {"lora_rank": None, **settings}
        use_cpu = True if device.type == "cpu" else None
        return tiny_run(place, **{"output_dir": str(tmp_path / "out"), "use_cpu": use_cpu, "bf16": None, **settings})

    return build


@pytest.fixture(autouse=True)
def _switches_as_they_were():
    """Put back what a run sets for the whole process: determinism, TF32 and a memory limit."""
    before = torch.backends.fp32_precision
    yield
    torch.use_deterministic_algorithms(False)
    if torch.backends.fp32_precision != before:
        torch.backends.fp32_precision = before
    if torch.cuda.is_initialized():
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
