"""Settings that must give the same numbers give them on a GPU, and those of the CPU."""

import pytest

from tests.tiny.models import tiny_model
from tests.tiny.training import largest_difference, tiny_trainer, uneven_rows, weights
from tunesmith.models.segments import SEGMENTS

pytestmark = pytest.mark.gpu


def train(folder, *, layout, attention, use_cpu, **settings):
    model = tiny_model("llama")
    model.set_attn_implementation(attention)
    trainer = tiny_trainer(
        folder, uneven_rows(20), model=model, layout=layout, use_cpu=use_cpu, evals=uneven_rows(5, seed=3), **settings
    )
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    found = {name: value.cpu() for name, value in weights(trainer.model).items()}
    return found, [*losses, trainer.evaluate()["eval_loss"]]


@pytest.fixture(scope="module")
def on_the_cpu(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cpu")
    return train(folder, layout="padded", attention="sdpa", use_cpu=True, per_device_train_batch_size=8)


@pytest.mark.parametrize(("layout", "attention"), [("padded", "sdpa"), ("padded", SEGMENTS), ("flat", SEGMENTS)])
@pytest.mark.parametrize(("batch_size", "accumulation"), [(8, 1), (2, 4)])
def test_layouts_and_accumulation_train_the_weights_of_the_cpu(
    tmp_path, device, on_the_cpu, layout, attention, batch_size, accumulation
):
    found, losses = train(
        tmp_path,
        layout=layout,
        attention=attention,
        use_cpu=device.type == "cpu",
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=accumulation,
    )
    assert losses == pytest.approx(on_the_cpu[1], abs=1e-4)
    assert largest_difference(found, on_the_cpu[0]) < 1e-4
