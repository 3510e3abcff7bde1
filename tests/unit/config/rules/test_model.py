import pytest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"train_from_scratch": True},
            (
                "train_from_scratch: `train_from_scratch: true` starts from random weights, and "
                "`finetuning_type: lora` leaves "
                "most of them as they are; set `finetuning_type: full`."
            ),
        ),
        (
            {"disable_gradient_checkpointing": True, "gradient_checkpointing": True},
            (
                "disable_gradient_checkpointing: `disable_gradient_checkpointing: true` contradicts "
                "`gradient_checkpointing: true`; keep one of them. (see gradient_checkpointing)"
            ),
        ),
        (
            {"use_reentrant_gc": True, "gradient_checkpointing": False},
            (
                "use_reentrant_gc: `use_reentrant_gc: true` has no effect while gradient checkpointing is off; "
                "remove one of the two."
            ),
        ),
    ],
)
def test_contradictions_are_refused(problems, changes, message):
    assert problems(**changes) == [message]


@pytest.mark.parametrize(
    "changes",
    [
        {"finetuning_type": "full", "train_from_scratch": True},
        {"use_reentrant_gc": True},
    ],
)
def test_what_fits_together_is_taken(problems, changes):
    assert problems(**changes) == []
