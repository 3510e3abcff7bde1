"""When a run begins to round."""

import pytest
from transformers import TrainerControl, TrainerState, TrainingArguments

from tests.tiny.models import tiny_model
from tunesmith.errors import ConfigError
from tunesmith.models.quantization.qat import CompressionScheme
from tunesmith.training.callbacks.rounding import StartRounding

pytest.importorskip("torchao")


@pytest.fixture
def call(tmp_path):
    """Tell a callback that training begins, or a step; return how many layers round then."""
    model = tiny_model()
    arguments, control = TrainingArguments(str(tmp_path), use_cpu=True), TrainerControl()

    def tell(callback, event, step, max_steps=10):
        state = TrainerState(global_step=step, max_steps=max_steps)
        {"train": callback.on_train_begin, "step": callback.on_step_begin}[event](arguments, state, control)
        return sum("FakeQuantized" in type(module).__name__ for module in model.modules())

    tell.model = model
    return tell


def test_rounding_begins_with_its_step_and_once(call):
    callback = StartRounding(call.model, CompressionScheme("int8-weight", 32), 2)
    assert [call(callback, "train", 0), call(callback, "step", 1)] == [0, 0]
    assert [call(callback, "step", 2), call(callback, "step", 3)] == [14, 14]


def test_a_resumed_run_rounds_from_its_beginning(call):
    callback = StartRounding(call.model, CompressionScheme("int8-weight", 32), 2)
    assert call(callback, "train", 5) == 14


def test_a_step_that_never_comes_is_refused(call):
    callback = StartRounding(call.model, CompressionScheme("int8-weight", 32), 10)
    with pytest.raises(ConfigError, match="qat_start_step is 10, and the run has 10 steps"):
        call(callback, "train", 0)
