"""Preferences: any split, layout, number of processes and interruption trains the same weights and logs the same."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.tiny.models import tiny_model
from tests.tiny.preferences import FixedReference, tiny_objective, uneven_pairs
from tests.tiny.processes import run_processes
from tests.tiny.training import StopAfter, largest_difference, tiny_trainer, weights
from tunesmith.data.collators import build_collator
from tunesmith.models.reward.build import build_reward_model
from tunesmith.models.segments import SEGMENTS
from tunesmith.runtime.ranks import current_ranks
from tunesmith.training.resume import resolve_resume_point

KINDS = {
    "dpo": {"stage": "dpo", "pref_ftx": 0.3},
    "sum": {"stage": "dpo", "pref_loss": ("ipo", "bco_pair"), "pref_loss_weights": (0.2, 1.0), "ld_alpha": 0.5},
    "orpo": {"stage": "dpo", "pref_loss": ("orpo",)},
    "kto_pair": {"stage": "dpo", "pref_loss": ("kto_pair",)},
    "kto": {"stage": "kto", "pref_ftx": 0.2},
    "rm": {"stage": "rm", "center_rewards_coefficient": 0.1},
}
REFERENCE = {alpha: FixedReference(tiny_model("llama", seed=4), alpha) for alpha in (None, 0.5)}
NUM_ROWS = 20  # in steps of 8: the last one has 4


def build_model(kind, tuning, attention="sdpa"):
    model = tiny_model("llama")
    if kind == "rm":
        torch.manual_seed(6)
        model = build_reward_model(model, SimpleNamespace(pad_token_id=417))
    model.set_attn_implementation(attention)
    if tuning == "full":
        return model
    torch.manual_seed(5)
    task = {"task_type": "SEQ_CLS", "modules_to_save": ["score"]} if kind == "rm" else {"task_type": "CAUSAL_LM"}
    return get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", **task))


def build_trainer(folder, kind, *, tuning="full", layout="padded", attention="sdpa", rows=None, **options):
    model = build_model(kind, tuning, attention)
    settings = dict(KINDS[kind])
    rows_hold = "feedback" if settings["stage"] == "kto" else "pairs"
    return tiny_trainer(
        Path(folder),
        uneven_pairs(NUM_ROWS) if rows is None else rows,
        model=model,
        # Another model, or whether a pair is right before the first step would be left to rounding.
        objective=tiny_objective(model, reference=REFERENCE[settings.get("ld_alpha")], pref_beta=0.4, **settings),
        collator=build_collator(layout, kind=rows_hold, pad_token_id=417),
        evals=uneven_pairs(7, seed=5),
        **{"num_train_epochs": 2, "learning_rate": 0.1, "eval_strategy": "epoch", **options},
    )


KEPT = ("loss", "grad_norm", "learning_rate", "rewards/", "logps/", "logits/", "entropy", "kl", "step")
KEPT += ("accuracy", "margin")


def log_of(trainer):
    """Every number of training and evaluation that does not depend on the clock or on how a step is split."""
    return [
        {
            key: value
            for key, value in line.items()
            if key.removeprefix("eval_").startswith(KEPT) and "second" not in key
        }
        for line in trainer.state.log_history
        if "loss" in line or "eval_loss" in line
    ]


def train(*arguments, **options):
    trainer = build_trainer(*arguments, **options)
    trainer.train()
    return weights(trainer.model), log_of(trainer)


def assert_same(found, expected, *, tolerance=1e-5):
    assert largest_difference(found[0], expected[0]) < tolerance
    assert len(found[1]) == len(expected[1])
    for line, other in zip(found[1], expected[1], strict=True):
        assert line == pytest.approx(other, abs=2e-5)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    known = {}

    def find(kind, tuning="full"):
        if (kind, tuning) not in known:
            folder = tmp_path_factory.mktemp("whole")
            known[kind, tuning] = train(folder, kind, tuning=tuning, per_device_train_batch_size=8)
        return known[kind, tuning]

    return find


@pytest.mark.parametrize(
    ("kind", "rows_at_once", "accumulation"),
    [
        ("dpo", 2, 4),
        ("dpo", 1, 8),
        ("sum", 2, 4),
        ("orpo", 1, 8),
        ("kto_pair", 1, 8),
        ("kto", 2, 4),
        ("kto", 1, 8),
        ("rm", 2, 4),
    ],
)
def test_splits_train_the_same_weights_and_log_the_same(tmp_path, whole, kind, rows_at_once, accumulation):
    options = {"per_device_train_batch_size": rows_at_once, "gradient_accumulation_steps": accumulation}
    assert_same(train(tmp_path, kind, per_device_eval_batch_size=2, **options), whole(kind))


@pytest.mark.parametrize("kind", ["dpo", "kto", "rm"])
def test_adapters_split_the_same_way(tmp_path, whole, kind):
    options = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
    assert_same(train(tmp_path, kind, tuning="lora", **options), whole(kind, "lora"))


def test_the_numbers_that_are_compared_include_those_of_preferences(whole):
    training, *_, evaluation = whole("dpo")[1]
    names = {"rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "entropy"}
    names |= {"logps/chosen", "logps/rejected", "logits/chosen", "logits/rejected"}
    assert names <= training.keys()
    assert {f"eval_{name}" for name in names} <= (whole("dpo")[1][3].keys() | evaluation.keys())
    assert "kl" in whole("kto")[1][0]
    assert {"accuracy", "margin", "rewards/chosen", "rewards/rejected"} <= whole("rm")[1][0].keys()


@pytest.mark.parametrize("kind", ["sum", "kto", "rm"])
@pytest.mark.parametrize("layout", ["padded", "flat"])
def test_flat_and_packed_batches_train_the_same_weights(tmp_path, whole, kind, layout):
    rows = uneven_pairs(NUM_ROWS)
    attention = SEGMENTS if layout == "flat" else "sdpa"
    if layout == "flat":  # padded rows that are not packed are what it is compared with
        flat = train(tmp_path, kind, layout=layout, attention=attention, per_device_train_batch_size=8)
        assert_same(flat, whole(kind))
    packs = [rows[start : start + 2] for start in range(0, NUM_ROWS, 2)]
    packed = train(tmp_path, kind, layout=layout, attention=attention, rows=packs, per_device_train_batch_size=4)
    assert_same(packed, whole(kind))


@pytest.mark.parametrize("tuning", ["full", "lora"])
@pytest.mark.parametrize("kind", ["dpo", "kto", "rm"])
def test_a_resumed_run_ends_like_one_that_was_not_interrupted(tmp_path, kind, tuning):
    options = {"save_strategy": "steps", "save_steps": 10, "optim": "adamw_torch", "learning_rate": 1e-3}
    options |= {"shuffle": True, "logging_steps": 2, "per_device_train_batch_size": 4, "tuning": tuning}
    expected = train(tmp_path / "whole", kind, **options)
    train(tmp_path / "parts", kind, callbacks=[StopAfter(3)], **options)  # inside a logging window
    point = resolve_resume_point(setting=True, output_dir=tmp_path / "parts")
    assert point.manifest.step == 3
    second = build_trainer(tmp_path / "parts", kind, **options)
    second.restore(point)
    second.train(resume_from_checkpoint=str(point.path))
    found = weights(second.model)
    assert all(torch.equal(found[name], expected[0][name]) for name in expected[0])
    assert log_of(second) == expected[1]


CASES = [("kto", "full", 1), ("dpo", "lora", 4), ("kto_pair", "full", 4), ("rm", "full", 4), ("rm", "lora", 1)]


def train_in_processes(folder):
    """Train every case in the processes that are there."""
    for kind, tuning, batch_size in CASES:
        place = Path(folder) / f"{kind}-{tuning}"
        rows = {"per_device_train_batch_size": batch_size, "gradient_accumulation_steps": 4 // batch_size}
        trainer = build_trainer(place, kind, tuning=tuning, ranks=current_ranks(), **rows)
        trainer.train()
        if current_ranks().is_main:
            place.mkdir(exist_ok=True)
            torch.save(weights(trainer.model), place / "weights.pt")
            (place / "log.json").write_text(json.dumps(log_of(trainer)))


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    run_processes("tests.equivalence.test_preferences:train_in_processes", [str(folder)])
    return folder


@pytest.mark.processes
@pytest.mark.parametrize(("kind", "tuning"), [case[:2] for case in CASES])
def test_two_processes_train_what_one_trains(two_processes, whole, kind, tuning):
    """20 rows in steps of 8: one process is short of rows in the last one and gets fillers."""
    place = two_processes / f"{kind}-{tuning}"
    found = torch.load(place / "weights.pt"), json.loads((place / "log.json").read_text())
    assert_same(found, whole(kind, tuning))
