import pytest

FULL = {"finetuning_type": "full"}


@pytest.mark.parametrize(
    "changes",
    [
        {**FULL, "use_galore": True, "galore_rank": 8, "optim": "adafactor"},
        {**FULL, "use_galore": True, "galore_layerwise": True, "max_grad_norm": 0, "gradient_accumulation_steps": 1},
        {**FULL, "use_badam": True, "badam_mode": "ratio", "learning_rate_groups": {"mlp": 1e-5}},
        {"use_muon": True},
        {"learning_rate_groups": {"embeddings": 1e-5, "lora_B$": 0.001}},
        {"use_galore": False, "galore_layerwise": False},
    ],
)
def test_what_fits_together_is_taken(problems, changes):
    assert problems(**changes) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({**FULL, "use_galore": True, "use_muon": True}, "`use_galore: true`, `use_muon: true` are several optimizers"),
        ({**FULL, "use_apollo": True, "optim": "sgd"}, "are two optimizers; allowed in `optim` is adamw_torch"),
        ({"galore_rank": 8}, "`galore_rank: 8` has no effect without `use_galore: true`"),
        ({"use_galore": True}, "saves optimizer memory of whole weights, and `finetuning_type: lora` has next to none"),
        (
            {"optimizer_in_backward": True, "max_grad_norm": 0, "gradient_accumulation_steps": 2},
            "so gradients cannot be added up over micro-batches",
        ),
        (
            {"optimizer_in_backward": True, "max_grad_norm": 0, "per_device_train_batch_size": "auto"},
            "so the rows of a step have to fit at once, and `per_device_train_batch_size: auto` would add up",
        ),
        (
            {**FULL, "use_badam": True, "learning_rate_groups": {"embeddings": 1e-5}},
            "`use_badam: true` treats all parameters alike, so `learning_rate_groups: ",
        ),
        (
            {"optim": "lomo", "max_grad_norm": 0, "weight_decay": 0.1},
            "`optim: lomo` treats all parameters alike, so `weight_decay: 0.1` would have no effect",
        ),
        (
            {"optim": "lomo", "max_grad_norm": 0, "loraplus_lr_ratio": 4},
            "`optim: lomo` treats all parameters alike, so `loraplus_lr_ratio: 4` would have no effect",
        ),
        ({"optimizer_in_backward": True}, "so gradients cannot be shortened together; set `max_grad_norm: 0`"),
        ({"optim": "lomo"}, "`optim: lomo` updates each parameter during the backward pass"),
        (
            {"optimizer_in_backward": True, "use_muon": True, "max_grad_norm": 0},
            "`optimizer_in_backward: true` does not work with `use_muon: true`",
        ),
        (
            {**FULL, "use_badam": True, "resume_from_checkpoint": True},
            "`use_badam: true` cannot go on from a checkpoint: its package does not save which block it was at",
        ),
        (
            {"optim": "grokadamw", "resume_from_checkpoint": True},
            "`optim: grokadamw` cannot go on from a checkpoint: its package does not save its running means",
        ),
        ({**FULL, "optim": "adalomo", "max_grad_norm": 0}, "`optim: adalomo` needs a GPU"),
        ({**FULL, "use_galore": True, "optim": "adamw_8bit"}, "`optim: adamw_8bit` needs a GPU"),
    ],
)
def test_contradictions_are_refused(problems, changes, words):
    found = problems(**changes)
    assert any(words in text for text in found), found


def test_loss_scaling_cannot_be_undone_during_the_backward_pass(problems):
    found = problems(optimizer_in_backward=True, max_grad_norm=0, fp16=True)
    assert any("which the loss scaling of `fp16: true` cannot undo" in text for text in found)


def test_a_missing_package_is_named(problems, monkeypatch):
    from tunesmith.config.rules import packages

    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    found = problems(**FULL, use_galore=True)
    assert any("`use_galore: true` needs the package galore-torch" in text for text in found)
