"""Two GPUs train what one trains, over NCCL."""

from pathlib import Path

import pytest
import torch

from tests.tiny.models import tiny_model
from tests.tiny.processes import run_processes
from tests.tiny.training import largest_difference, tiny_trainer, uneven_rows, weights
from tunesmith.runtime.ranks import current_ranks
from tunesmith.training.monitoring.log import LOG_FILE, LogFile, read_log
from tunesmith.training.resume import resolve_resume_point

pytestmark = [pytest.mark.gpu, pytest.mark.processes]


def train(folder, device, batch_size, max_steps="-1", resume=""):
    folder, ranks = Path(folder), current_ranks()
    point = resolve_resume_point(setting=True, output_dir=folder) if resume else None
    trainer = tiny_trainer(
        folder,
        uneven_rows(21),  # the last step has 5 rows: the gap is filled
        model=tiny_model("llama"),
        ranks=ranks,
        shuffle=True,
        evals=uneven_rows(7, seed=5),
        per_device_train_batch_size=int(batch_size),
        num_train_epochs=2,
        max_steps=int(max_steps),
        eval_strategy="epoch",
        save_strategy="epoch",
        use_cpu=device == "cpu",
    )
    if ranks.world_size > 1:
        assert torch.distributed.get_backend() == ("gloo" if device == "cpu" else "nccl")
    trainer.add_callback(LogFile(folder / LOG_FILE, trainer.meter))
    if point is not None:
        trainer.restore(point)
    trainer.train(resume_from_checkpoint=None if point is None else str(point.path))
    if ranks.is_main:
        torch.save({name: value.cpu() for name, value in weights(trainer.model).items()}, folder / "weights.pt")


def losses_of(folder):
    return [line.get("loss", line.get("eval_loss")) for line in read_log(folder / LOG_FILE)]


@pytest.fixture
def two_devices(request, device):
    """Two GPUs; on the CPU two processes stand in for them."""
    return device if device.type == "cpu" else request.getfixturevalue("two_gpus")


def test_two_gpus_train_and_resume_to_what_one_trains(tmp_path, two_devices):
    kind = two_devices.type
    one, two, parts = tmp_path / "one", tmp_path / "two", tmp_path / "parts"
    train(one, kind, 8)
    run_processes("tests.gpu.test_processes:train", [str(two), kind, "4"])
    assert losses_of(two) == pytest.approx(losses_of(one), abs=1e-4)
    expected = torch.load(two / "weights.pt")
    assert largest_difference(expected, torch.load(one / "weights.pt")) < 1e-4
    run_processes("tests.gpu.test_processes:train", [str(parts), kind, "4", "3"])
    assert (parts / "checkpoint-3" / "rng_state_1.pth").is_file()
    run_processes("tests.gpu.test_processes:train", [str(parts), kind, "4", "-1", "resume"])
    assert largest_difference(torch.load(parts / "weights.pt"), expected) < 1e-6
