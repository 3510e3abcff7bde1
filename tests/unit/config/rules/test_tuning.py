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
            {"finetuning_type": "full", "adapter_name_or_path": "some/adapter"},
            (
                "adapter_name_or_path: `adapter_name_or_path` is set with `finetuning_type: full`; "
                "adapters go on only with "
                "`finetuning_type: lora`. To train whole weights from there, export the merged model first. "
                "(see finetuning_type)"
            ),
        ),
        (
            {"create_new_adapter": True},
            (
                "create_new_adapter: `create_new_adapter: true` merges the adapters of "
                "`adapter_name_or_path`, which is empty; "
                "name them or remove `create_new_adapter`."
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
        {"finetuning_type": "full", "train_from_scratch": True},
        {"loraplus_lr_ratio": 16, "loraplus_lr_embedding": 1e-5},
        {"adapter_name_or_path": ["org/a", "org/b"], "create_new_adapter": True},
        {"quantization_method": "bnb", "double_quantization": True, "quantization_bit": None},
        {"use_reentrant_gc": True},
        {"lora_target": "", "adapter_name_or_path": "org/a"},
        {"lora_target": "", "finetuning_type": "full"},
    ],
)
def test_what_fits_together_is_taken(problems, changes):
    assert problems(**changes) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [("stage", "ppo"), ("optim", "galore_adamw"), ("quantization_method", "gptq")],
)
def test_values_known_elsewhere_are_said_to_be_not_supported_yet(problems, key, value):
    assert any(
        f"`{key}` is '{value}', which is known, but not supported yet; allowed is " in text
        for text in problems(**{key: value})
    )
