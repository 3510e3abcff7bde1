"""What our trainer overrides still looks the same in the installed transformers."""

import inspect

import pytest
from transformers import Trainer

from tunesmith.training.io.fed_trainer import FedTrainer
from tunesmith.training.trainer import ObjectiveTrainer

OVERRIDDEN = sorted(
    name
    for name, value in {**vars(FedTrainer), **vars(ObjectiveTrainer)}.items()
    if inspect.isfunction(value) and name in vars(Trainer) and name != "__init__"
)

CALLED = {
    "_save_optimizer_and_scheduler": ["self", "output_dir"],
    "_save_scaler": ["self", "output_dir"],
    "_save_rng_state": ["self", "output_dir"],
    "save_model": ["self", "output_dir", "_internal_call"],
    "store_flos": ["self"],
    "get_optimizer_cls_and_kwargs": ["args", "model"],
}


def test_the_overrides_are_the_known_ones():
    assert OVERRIDDEN == [
        "_clip_grad_norm",
        "_get_grad_norm",
        "_prepare_inputs",
        "_run_epoch",
        "_save",
        "_save_checkpoint",
        "compute_loss",
        "create_optimizer",
        "evaluation_loop",
        "floating_point_ops",
        "get_batch_samples",
        "get_eval_dataloader",
        "get_train_dataloader",
        "log",
        "train",
        "training_step",
    ]


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_parameters_are_those_of_the_installed_trainer(name):
    ours = inspect.signature(getattr(ObjectiveTrainer, name)).parameters
    theirs = inspect.signature(getattr(Trainer, name)).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in ours.values()):
        return  # passes on whatever it is given by name
    assert list(ours) == list(theirs)
    for parameter in theirs:
        assert ours[parameter].default == theirs[parameter].default, parameter


@pytest.mark.parametrize("name", sorted(CALLED))
def test_what_is_called_still_takes_the_same(name):
    assert list(inspect.signature(getattr(Trainer, name)).parameters) == CALLED[name]


def test_trainer_still_asks_whether_the_loss_is_scaled():
    assert "loss_is_scaled_for_ga" in vars(Trainer)
