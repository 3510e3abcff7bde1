"""Rules about what is trained: adapters and frozen layers."""

from collections.abc import Iterator

from tunesmith.config.rules.registry import Finding, Question, rule

_LORA_ONLY = (
    "lora_rank",
    "lora_alpha",
    "lora_dropout",
    "lora_target",
    "additional_target",
    "use_rslora",
    "use_dora",
    "loraplus_lr_ratio",
    "loraplus_lr_embedding",
    "create_new_adapter",
)
_FREEZE_ONLY = ("freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules")


@rule()
def lora_settings_need_lora(question: Question) -> Iterator[Finding]:
    """Settings of an adapter have no effect when none is trained."""
    kind = question.config.adapter.finetuning_type
    for key in _LORA_ONLY:
        changes = question.config.value(key) not in (None, False, ())
        if kind != "lora" and changes and question.is_set(key):
            yield Finding(
                (key, "finetuning_type"),
                f"{question.cite(key)} has no effect with {question.cite('finetuning_type')}; "
                "remove it or set `finetuning_type: lora`.",
            )


@rule()
def new_adapter_has_a_target(question: Question) -> Iterator[Finding]:
    """An adapter on nothing trains nothing."""
    adapter = question.config.adapter
    goes_on = adapter.adapter_name_or_path and not adapter.create_new_adapter
    if adapter.finetuning_type == "lora" and not adapter.lora_target and not goes_on:
        yield Finding(
            ("lora_target",),
            "`lora_target` is empty, so no module would get an adapter; name modules such as q_proj, or set "
            "`lora_target: all`.",
        )


@rule()
def freeze_settings_need_freeze(question: Question) -> Iterator[Finding]:
    """Settings of frozen layers have no effect with other kinds of tuning."""
    kind = question.config.adapter.finetuning_type
    for key in _FREEZE_ONLY:
        if kind != "freeze" and question.is_set(key) and question.config.value(key) != ():
            yield Finding(
                (key, "finetuning_type"),
                f"{question.cite(key)} has no effect with {question.cite('finetuning_type')}; "
                "remove it or set `finetuning_type: freeze`.",
            )


@rule()
def freeze_trains_some_layer(question: Question) -> Iterator[Finding]:
    """Zero layers and nothing besides would train nothing."""
    adapter = question.config.adapter
    if (
        adapter.finetuning_type == "freeze"
        and adapter.freeze_trainable_layers == 0
        and not adapter.freeze_extra_modules
    ):
        yield Finding(
            ("freeze_trainable_layers",),
            "`freeze_trainable_layers: 0` trains nothing; give a number of last layers, a negative one for first "
            "layers, or name modules in `freeze_extra_modules`.",
        )


@rule()
def adapters_need_lora(question: Question) -> Iterator[Finding]:
    """A LoRA adapter cannot be continued by training whole weights."""
    adapter = question.config.adapter
    if adapter.adapter_name_or_path and adapter.finetuning_type != "lora":
        yield Finding(
            ("adapter_name_or_path", "finetuning_type"),
            f"`adapter_name_or_path` is set with {question.cite('finetuning_type')}; adapters go on only with "
            "`finetuning_type: lora`. To train whole weights from there, export the merged model first.",
        )


@rule()
def new_adapter_needs_an_old_one(question: Question) -> Iterator[Finding]:
    """Without adapters to merge, every adapter is new."""
    adapter = question.config.adapter
    if adapter.create_new_adapter and adapter.finetuning_type == "lora" and not adapter.adapter_name_or_path:
        yield Finding(
            ("create_new_adapter",),
            "`create_new_adapter: true` merges the adapters of `adapter_name_or_path`, which is empty; "
            "name them or remove `create_new_adapter`.",
        )


@rule()
def loraplus_embedding_rate_needs_loraplus(question: Question) -> Iterator[Finding]:
    """The embedding rate belongs to LoRA+."""
    adapter = question.config.adapter
    if question.is_set("loraplus_lr_embedding") and adapter.loraplus_lr_ratio is None:
        yield Finding(
            ("loraplus_lr_embedding",),
            "`loraplus_lr_embedding` has no effect without `loraplus_lr_ratio`; set both or remove it.",
        )


@rule()
def scratch_needs_full_tuning(question: Question) -> Iterator[Finding]:
    """An adapter beside random frozen weights learns nothing."""
    kind = question.config.adapter.finetuning_type
    if question.config.model.train_from_scratch and kind != "full":
        yield Finding(
            ("train_from_scratch", "finetuning_type"),
            f"`train_from_scratch: true` starts from random weights, and "
            f"{question.cite('finetuning_type')} leaves most of them as they are; set `finetuning_type: full`.",
        )


@rule()
def checkpointing_is_said_once(question: Question) -> Iterator[Finding]:
    """The two switches for gradient checkpointing must not disagree."""
    model = question.config.model
    if model.disable_gradient_checkpointing and model.gradient_checkpointing is True:
        yield Finding(
            ("disable_gradient_checkpointing", "gradient_checkpointing"),
            "`disable_gradient_checkpointing: true` contradicts `gradient_checkpointing: true`; keep one of them.",
        )
    off = model.disable_gradient_checkpointing or model.gradient_checkpointing is False
    if model.use_reentrant_gc and off:
        yield Finding(
            ("use_reentrant_gc",),
            "`use_reentrant_gc: true` has no effect while gradient checkpointing is off; remove one of the two.",
        )
