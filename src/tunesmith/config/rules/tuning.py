"""Rules about what is trained: a method of peft, its first weights, or some layers."""

from collections.abc import Iterator

from tunesmith.config.peft_methods import MOVES_WEIGHTS, PEFT_METHODS
from tunesmith.config.rules.registry import Finding, Question, rule

_LORA_ONLY = (
    "lora_rank",
    "lora_alpha",
    "lora_dropout",
    "lora_rank_pattern",
    "lora_alpha_pattern",
    "use_rslora",
    "use_dora",
    "init_lora_weights",
    "pissa_init",
    "pissa_iter",
    "loraplus_lr_ratio",
    "loraplus_lr_embedding",
)
_ADAPTER_ONLY = ("lora_target", "additional_target", "create_new_adapter", "adapter_options")
_FREEZE_ONLY = (
    "freeze_trainable_layers",
    "freeze_trainable_modules",
    "freeze_extra_modules",
    "use_llama_pro",
    "llama_pro_new_blocks",
)
_WITHOUT_REFERENCE = ("pt", "sft", "rm")
"""Stages that never ask the model without its adapter."""

_OFT_ONLY = ("oft_rank", "oft_block_size", "module_dropout")


@rule()
def lora_settings_need_lora(question: Question) -> Iterator[Finding]:
    """Settings of an adapter have no effect when none is trained, nor those of LoRA with another method."""
    kind = question.config.adapter.finetuning_type
    for key in (*_LORA_ONLY, *_ADAPTER_ONLY):
        if not question.is_set(key) or question.config.value(key) in (None, False, (), {}, "default"):
            continue
        if kind in PEFT_METHODS and (kind == "lora" or key in _ADAPTER_ONLY):
            continue
        way_out = "remove it or set `finetuning_type: lora`."
        if kind in PEFT_METHODS:
            way_out = "put what this method has of the kind into `adapter_options`, or set `finetuning_type: lora`."
        yield _no_effect(question, key, way_out)


def _no_effect(question: Question, key: str, way_out: str) -> Finding:
    """Object to a setting that the kind of tuning has no use for."""
    message = f"{question.cite(key)} has no effect with {question.cite('finetuning_type')}; {way_out}"
    return Finding((key, "finetuning_type"), message)


@rule()
def oft_settings_need_oft(question: Question) -> Iterator[Finding]:
    """Settings of rotations have no effect with other methods, and exactly one of two gives their size."""
    adapter = question.config.adapter
    if adapter.finetuning_type != "oft":
        for key in _OFT_ONLY:
            if question.is_set(key):
                yield _no_effect(question, key, "remove it or set `finetuning_type: oft`.")
    elif bool(adapter.oft_rank) == bool(adapter.oft_block_size):
        yield Finding(
            ("oft_rank", "oft_block_size"),
            f"{question.cite('oft_rank')} and {question.cite('oft_block_size')}: one of the two gives the size of the "
            "rotations and the other follows from it; set the other to 0.",
        )


@rule()
def method_gets_what_it_needs(question: Question) -> Iterator[Finding]:
    """Some methods have no usable defaults, and some have no choice of modules."""
    adapter = question.config.adapter
    method = PEFT_METHODS.get(adapter.finetuning_type)
    if method is None or (adapter.adapter_name_or_path and not adapter.create_new_adapter):
        return
    for option in method.needs:
        if option not in adapter.adapter_options:
            yield Finding(
                ("finetuning_type", "adapter_options"),
                f"{question.cite('finetuning_type')} needs `{option}`; set it in `adapter_options`.",
            )
    if method.place == "none" and question.is_set("lora_target"):
        yield Finding(
            ("lora_target", "finetuning_type"),
            f"{question.cite('lora_target')} has no effect with {question.cite('finetuning_type')}, which changes no "
            "modules; remove it.",
        )


@rule()
def method_can_go_on(question: Question) -> Iterator[Finding]:
    """Some methods do not save all that their training goes on from."""
    config, adapter = question.config, question.config.adapter
    method = PEFT_METHODS.get(adapter.finetuning_type)
    if method is None or not method.resume_obstacle or not config.training.do_train:
        return
    continues = adapter.adapter_name_or_path and not adapter.create_new_adapter
    for key, asks in (
        ("resume_from_checkpoint", config.training.resume_from_checkpoint),
        ("adapter_name_or_path", continues),
    ):
        if asks:
            yield Finding(
                (key, "finetuning_type"),
                f"{question.cite(key)} cannot be combined with {question.cite('finetuning_type')}: "
                f"{method.resume_obstacle}; start a new run without it.",
            )


@rule()
def prompts_need_rows_apart(question: Question) -> Iterator[Finding]:
    """Learnt prompts stand in front of a row, so every sample needs a row of its own."""
    config = question.config
    method = PEFT_METHODS.get(config.adapter.finetuning_type)
    if method is None or not method.is_prompt:
        return
    if config.objective.stage not in ("pt", "sft"):
        yield Finding(
            ("finetuning_type", "stage"),
            f"{question.cite('finetuning_type')} cannot be combined with {question.cite('stage')}, whose rows hold "
            "several texts; set `finetuning_type: lora`.",
        )
    for key, asks in (("packing", config.packs), ("padding_free", config.loading.padding_free is True)):
        if asks:
            yield Finding(
                (key, "finetuning_type"),
                f"{question.cite(key)} cannot be combined with {question.cite('finetuning_type')}: what is learnt "
                f"stands in front of a row, and rows with several samples have one beginning; set `{key}: false`.",
            )


@rule()
def first_weights_are_said_once(question: Question) -> Iterator[Finding]:
    """`pissa_init` is another name for one of the values of `init_lora_weights`."""
    adapter = question.config.adapter
    if adapter.pissa_init and adapter.init_lora_weights != "pissa":
        yield Finding(
            ("pissa_init", "init_lora_weights"),
            f"`pissa_init: true` contradicts {question.cite('init_lora_weights')}; keep one of them.",
        )
    if question.is_set("pissa_iter") and adapter.init_lora_weights != "pissa":
        yield Finding(("pissa_iter",), "`pissa_iter` has no effect without `pissa_init: true`; set both or remove it.")


@rule()
def first_weights_suit_the_rest(question: Question) -> Iterator[Finding]:
    """Ways to begin that change the frozen weights cannot be combined with what needs these as they were."""
    config = question.config
    begin, cited = config.adapter.init_lora_weights, question.cite("init_lora_weights")
    bits = config.quantization.quantization_bit
    if begin == "loftq" and bits != 4:
        yield Finding(
            ("init_lora_weights", "quantization_bit"),
            f"{cited} makes up for what weights lose in 4 bits, and this run has none; set `quantization_bit: 4`.",
        )
    if begin == "loftq" and config.objective.stage not in _WITHOUT_REFERENCE:
        yield Finding(
            ("init_lora_weights", "stage"),
            f"{cited} cannot be combined with {question.cite('stage')}: the model without its adapter is the reference "
            "there, and lacks what this puts into the adapter; set `init_lora_weights: default`.",
        )
    if begin not in MOVES_WEIGHTS:
        return
    if bits is not None:
        yield Finding(
            ("init_lora_weights", "quantization_bit"),
            f"{cited} takes a part out of the frozen weights, which cannot be done to quantised ones; remove "
            "`quantization_bit`, or set `init_lora_weights: loftq`.",
        )
    if config.adapter.use_dora:
        yield Finding(
            ("init_lora_weights", "use_dora"),
            f"{cited} cannot be combined with `use_dora: true`: magnitudes would be those of the changed weights.",
        )
    if config.objective.stage not in _WITHOUT_REFERENCE:
        yield Finding(
            ("init_lora_weights", "stage"),
            f"{cited} cannot be combined with {question.cite('stage')}: the model without its adapter is the "
            "reference there, and this takes a part out of it; set `init_lora_weights: default`.",
        )


@rule()
def llama_pro_settings_belong_together(question: Question) -> Iterator[Finding]:
    """New blocks are those of LLaMA Pro, and they are what it trains."""
    adapter = question.config.adapter
    if adapter.llama_pro_new_blocks and not adapter.use_llama_pro:
        yield Finding(
            ("llama_pro_new_blocks",), "`llama_pro_new_blocks` has no effect without `use_llama_pro: true`; set both."
        )
    if not adapter.use_llama_pro:
        return
    number = adapter.freeze_trainable_layers
    if number < 1:
        yield Finding(
            ("freeze_trainable_layers", "use_llama_pro"),
            f"{question.cite('freeze_trainable_layers')} cannot be combined with `use_llama_pro: true`, which spreads "
            "that many trained blocks over the model; give 1 or more.",
        )
    elif adapter.llama_pro_new_blocks and adapter.llama_pro_new_blocks != number:
        is_written = question.is_set("freeze_trainable_layers")
        yield Finding(
            ("llama_pro_new_blocks", "freeze_trainable_layers"),
            f"{question.cite('llama_pro_new_blocks')} and {question.cite('freeze_trainable_layers')}"
            f"{'' if is_written else ' (the default)'}: the new blocks are the ones that are trained; give both the "
            "same number.",
        )


@rule()
def new_adapter_has_a_target(question: Question) -> Iterator[Finding]:
    """An adapter on nothing trains nothing."""
    adapter = question.config.adapter
    goes_on = adapter.adapter_name_or_path and not adapter.create_new_adapter
    method = PEFT_METHODS.get(adapter.finetuning_type)
    if method is not None and method.place != "none" and not adapter.lora_target and not goes_on:
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
            yield _no_effect(question, key, "remove it or set `finetuning_type: freeze`.")


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
def loraplus_embedding_rate_needs_loraplus(question: Question) -> Iterator[Finding]:
    """The embedding rate belongs to LoRA+."""
    adapter = question.config.adapter
    if question.is_set("loraplus_lr_embedding") and adapter.loraplus_lr_ratio is None:
        yield Finding(
            ("loraplus_lr_embedding",),
            "`loraplus_lr_embedding` has no effect without `loraplus_lr_ratio`; set both or remove it.",
        )
