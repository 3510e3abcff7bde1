"""A compiled model learns what one that is not compiled learns, without falling back to uncompiled pieces."""

import pytest
import torch
from torch._dynamo.utils import counters

from tests.tiny.runs import tiny_run, write_dataset, write_model
from tunesmith.training.run import run_training


def losses(folder, name, **settings):
    config = tiny_run(folder, output_dir=str(folder / name), logging_steps=1, max_steps=4, **settings)
    return [line["loss"] for line in run_training(config).state.log_history if "loss" in line]


@pytest.mark.slow
@pytest.mark.parametrize("layout", [{}, {"packing": True, "flash_attn": "sdpa", "per_device_train_batch_size": 1}])
def test_a_compiled_model_learns_the_same(tmp_path, layout):
    write_model(tmp_path / "model")
    write_dataset(tmp_path / "data")
    plain = losses(tmp_path, "plain", **{"padding_free": False, **layout})
    torch._dynamo.reset()
    counters.clear()
    compiled = losses(tmp_path, "compiled", torch_compile=True, torch_compile_backend="aot_eager", **layout)
    assert compiled == pytest.approx(plain, rel=1e-5)
    assert sum(counters["graph_break"].values()) == 0
    assert counters["stats"]["unique_graphs"] == 2  # one for the first lengths, one for any
