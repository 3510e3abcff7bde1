"""The table of optimizers agrees with transformers."""

import re
from dataclasses import replace
from inspect import getsource
from typing import get_args

import pytest

from tunesmith.config.optimization import Optimizer
from tunesmith.config.optimizers import ADAM_SETTINGS, OPTIMIZER_INPUTS, OURS_ALONE

BUILT_IN = ("adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "adagrad", "rmsprop")
EXAMPLES = {"number": "0.25", "whole": "3", "switch": "true", "true": "true"}


def build(optim, details="", **settings):
    """Return the arguments that transformers makes an optimizer with."""
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(optim=optim, optim_args=details, use_cpu=True, **settings)
    return Trainer.get_optimizer_cls_and_kwargs(arguments)[1]


def test_every_optimizer_is_in_the_table():
    assert set(OPTIMIZER_INPUTS) == set(get_args(Optimizer))


@pytest.mark.parametrize("optim", BUILT_IN)
def test_details_and_settings_reach_the_optimizer_and_no_others_do(optim):
    plain, inputs = build(optim), OPTIMIZER_INPUTS[optim]
    for name in ("momentum", "dampening", "nesterov", "lr_decay", "eps", "alpha", "centered", "r", "beta1"):
        detail = inputs.details.get(name)
        changed = build(optim, f"{name}={EXAMPLES[detail or 'number']}") != plain
        assert changed is (detail is not None), name
    for name in ADAM_SETTINGS:
        assert (build(optim, **{name: 0.5}) != plain) is (name in inputs.settings), name


def test_details_of_optimizers_in_other_packages_are_names_that_transformers_looks_for():
    from transformers.trainer_optimizer import _OPTIMIZER_HANDLERS

    for optim, inputs in OPTIMIZER_INPUTS.items():
        if optim in OURS_ALONE:
            assert not inputs.details
            continue
        looked_for = set(re.findall(r'"(\w+)"', getsource(_OPTIMIZER_HANDLERS[optim])))
        assert set(inputs.details) <= looked_for, optim


def test_the_table_cannot_be_changed():
    with pytest.raises(AttributeError):
        OPTIMIZER_INPUTS["sgd"].settings = ()
    assert replace(OPTIMIZER_INPUTS["sgd"], settings=()) == OPTIMIZER_INPUTS["sgd"]
