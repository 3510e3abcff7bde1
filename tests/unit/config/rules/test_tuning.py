import pytest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"finetuning_type": "full", "lora_rank": 16},
            (
                "lora_rank: `lora_rank: 16` has no effect with `finetuning_type: full`; remove it or set "
                "`finetuning_type: lora`. (see finetuning_type)"
            ),
        ),
        (
            {"finetuning_type": "freeze", "create_new_adapter": True},
            (
                "create_new_adapter: `create_new_adapter: true` has no effect with `finetuning_type: "
                "freeze`; remove it or set "
                "`finetuning_type: lora`. (see finetuning_type)"
            ),
        ),
        (
            {"freeze_trainable_layers": 3},
            (
                "freeze_trainable_layers: `freeze_trainable_layers: 3` has no effect with "
                "`finetuning_type: lora`; remove it or "
                "set `finetuning_type: freeze`."
            ),
        ),
        (
            {"finetuning_type": "freeze", "freeze_trainable_layers": 0},
            (
                "freeze_trainable_layers: `freeze_trainable_layers: 0` trains nothing; give a number "
                "of last layers, a negative "
                "one for first layers, or name modules in `freeze_extra_modules`."
            ),
        ),
        (
            {"loraplus_lr_embedding": 1e-5},
            (
                "loraplus_lr_embedding: `loraplus_lr_embedding` has no effect without "
                "`loraplus_lr_ratio`; set both or remove it."
            ),
        ),
        (
            {"lora_target": ""},
            (
                "lora_target: `lora_target` is empty, so no module would get an adapter; name modules such as q_proj, "
                "or set `lora_target: all`."
            ),
        ),
    ],
)
def test_contradictions_are_refused(problems, changes, message):
    assert problems(**changes) == [message]


@pytest.mark.parametrize(
    "changes",
    [
        {"finetuning_type": "full", "additional_target": [], "use_dora": False},
        {"finetuning_type": "freeze", "freeze_trainable_layers": -2, "freeze_extra_modules": "norm"},
        {"finetuning_type": "freeze", "freeze_trainable_layers": 0, "freeze_extra_modules": "norm"},
        {"loraplus_lr_ratio": 16, "loraplus_lr_embedding": 1e-5},
        {"quantization_method": "bnb", "double_quantization": True, "quantization_bit": None},
        {"lora_target": "", "adapter_name_or_path": "org/a"},
        {"lora_target": "", "finetuning_type": "full"},
    ],
)
def test_what_fits_together_is_taken(problems, changes):
    assert problems(**changes) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [("stage", "ppo"), ("optim", "adamw_anyprecision"), ("quantization_method", "quanto")],
)
def test_values_known_elsewhere_are_said_to_be_not_supported_yet(problems, key, value):
    said = next(text for text in problems(**{key: value}) if f"`{key}` is" in text)
    assert f"`{key}` is '{value}', which is known, but not supported yet; allowed is " in said
    assert "Did you mean" not in said  # it is no slip


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("optim", "galore_adafactor", "which is `use_galore: true` with `optim: adafactor` here"),
        ("quantization_method", "gptq", "which is read from the model itself: name one that is stored like that"),
        ("finetuning_type", "bone", "which is `miss` in peft now"),
    ],
)
def test_values_that_are_said_in_another_way_name_it(problems, key, value, words):
    assert any(f"`{key}` is '{value}', {words}" in text for text in problems(**{key: value}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"finetuning_type": "vera", "lora_rank": 4},
            "`lora_rank: 4` has no effect with `finetuning_type: vera`; put what this method has of the kind into",
        ),
        (
            {"finetuning_type": "full", "adapter_options": {"r": 4}},
            "no effect with `finetuning_type: full`; remove",
        ),
        (
            {"oft_rank": 4},
            "no effect with `finetuning_type: lora`; remove it or set `finetuning_type: oft`",
        ),
        (
            {"finetuning_type": "oft", "oft_rank": 4},
            "`oft_rank: 4` and `oft_block_size: 32`: one of the two",
        ),
        ({"finetuning_type": "oft", "oft_block_size": 0}, "one of the two gives the size"),
        ({"finetuning_type": "c3a"}, "`finetuning_type: c3a` needs `block_size`; set it in `adapter_options`"),
        ({"finetuning_type": "prompt_tuning", "lora_target": "q_proj"}, "which changes no modules; remove it"),
        ({"finetuning_type": "prompt_tuning", "packing": True}, "rows with several samples have one beginning; set"),
        ({"finetuning_type": "prefix_tuning", "padding_free": True}, "set `padding_free: false`"),
        ({"finetuning_type": "p_tuning", "stage": "dpo"}, "whose rows hold several texts; set `finetuning_type: lora`"),
        ({"finetuning_type": "p_tuning", "adapter_name_or_path": "org/a"}, "and not that network; start a new run"),
        ({"pissa_init": True, "init_lora_weights": "eva"}, "contradicts `init_lora_weights: eva`; keep one of them"),
        ({"pissa_iter": 4}, "`pissa_iter` has no effect without `pissa_init: true`"),
        ({"init_lora_weights": "loftq"}, "this run has none; set `quantization_bit: 4`"),
        ({"pissa_init": True, "quantization_bit": 4}, "cannot be done to quantised ones"),
        ({"init_lora_weights": "olora", "use_dora": True}, "magnitudes would be those of the changed weights"),
        (
            {"finetuning_type": "freeze", "llama_pro_new_blocks": 2},
            "`llama_pro_new_blocks` has no effect without `use_llama_pro: true`",
        ),
        (
            {"finetuning_type": "freeze", "use_llama_pro": True, "freeze_trainable_layers": -2},
            "which spreads that many trained blocks over the model; give 1 or more",
        ),
        (
            {"finetuning_type": "freeze", "use_llama_pro": True, "llama_pro_new_blocks": 4},
            "`llama_pro_new_blocks: 4` and `freeze_trainable_layers: 2` (the default): the new blocks are the ones",
        ),
        ({"finetuning_type": "verra"}, "Did you mean `vera`"),
        ({"oft_target": "q_proj"}, "targets of their own for OFT (`lora_target` decides)"),
    ],
    ids=str,
)
def test_settings_of_methods_that_mean_nothing_are_refused(problems, changes, message):
    found = problems(**changes)
    assert len(found) == 1, found
    assert message in found[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"finetuning_type": "oft", "oft_block_size": 0, "oft_rank": 4, "oft_target": "all"},
        {"finetuning_type": "vera", "adapter_options": {"r": 64}, "lora_target": "q_proj", "additional_target": "norm"},
        {"pissa_init": True, "pissa_iter": -1, "pissa_convert": True},
        {"pissa_init": True, "pissa_convert": False},
        {"init_lora_weights": "loftq", "quantization_bit": 4},
        {"finetuning_type": "freeze", "use_llama_pro": True, "llama_pro_new_blocks": 4, "freeze_trainable_layers": 4},
        {"finetuning_type": "prompt_tuning", "packing": False},
    ],
    ids=str,
)
def test_settings_of_methods_that_fit_are_taken(problems, changes):
    assert problems(**changes) == []
