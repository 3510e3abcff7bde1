import pytest


@pytest.mark.parametrize(
    "changes",
    [
        {"add_tokens": "alpha,beta", "add_special_tokens": ["<|a|>"]},
        {"new_special_tokens_config": {"<|a|>": "start of a"}, "init_special_tokens": "desc_init"},
        {"add_tokens": "alpha", "finetuning_type": "freeze", "freeze_extra_modules": "embed_tokens,lm_head"},
        {"resize_vocab": True, "init_special_tokens": "mean_init"},
    ],
)
def test_what_fits_together_is_taken(problems, changes):
    assert problems(**changes) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"add_tokens": "<|a|>", "add_special_tokens": "<|a|>"}, "both have '<|a|>'; keep it in one of them"),
        ({"add_tokens": ["alpha", ""]}, "`add_tokens` has an empty text; a token has at least one character"),
        ({"new_special_tokens_config": "nowhere.yaml"}, "is nowhere.yaml, and no file is there"),
        ({"init_special_tokens": "desc_init"}, "begins from descriptions; give them in `new_special_tokens_config`"),
        (
            {"add_special_tokens": "<|a|>", "finetuning_type": "freeze"},
            "adds tokens whose rows `finetuning_type: freeze` would not train",
        ),
        (
            {"add_tokens": "alpha", "finetuning_type": "prompt_tuning"},
            "adds tokens whose rows `finetuning_type: prompt_tuning` cannot train beside what it trains",
        ),
        (
            {"add_tokens": "alpha", "finetuning_type": "full", "use_badam": True},
            "`use_badam: true` trains layers alone, not the rows of tokens",
        ),
        ({"init_special_tokens": "zero"}, "allowed is one of mean_init, noise_init, desc_init, desc_init_w_noise"),
    ],
)
def test_contradictions_are_refused(problems, changes, words):
    (found,) = problems(**changes)
    assert words in found
