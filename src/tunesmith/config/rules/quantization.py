"""Rules about weights in fewer bits: which method stores what, and what can be trained beside or through them."""

from collections.abc import Iterator

from tunesmith.config.peft_methods import PEFT_METHODS
from tunesmith.config.quantization import QUANTIZATION_BITS
from tunesmith.config.rules.registry import Finding, Question, rule


@rule()
def compressed_weights_are_not_trained(question: Question) -> Iterator[Finding]:
    """Steps are far smaller than the distance between two compressed values, so only an adapter can learn."""
    bits = question.config.quantization.quantization_bit
    if bits is not None and question.config.adapter.finetuning_type in ("full", "freeze"):
        yield Finding(
            ("quantization_bit", "finetuning_type"),
            f"`quantization_bit: {bits}` cannot be combined with {question.cite('finetuning_type')}: quantised weights "
            "cannot be trained themselves, only an adapter beside them; set `finetuning_type: lora`.",
        )


@rule()
def method_bears_compressed_weights(question: Question) -> Iterator[Finding]:
    """Some methods of peft multiply by the frozen weights in a way of their own, and would read packed bytes."""
    quantization = question.config.quantization
    method = PEFT_METHODS.get(question.config.adapter.finetuning_type)
    packs = quantization.quantization_bit is not None and quantization.quantization_method == "bnb"
    if packs and method is not None and method.needs_exact_weights:
        yield Finding(
            ("quantization_bit", "finetuning_type"),
            f"{question.cite('quantization_bit')} cannot be combined with {question.cite('finetuning_type')}, which "
            "computes with the frozen weights themselves; set `finetuning_type: lora` or remove `quantization_bit`.",
        )


@rule()
def method_stores_these_bits(question: Question) -> Iterator[Finding]:
    """Each method has its own numbers of bits and formats."""
    quantization = question.config.quantization
    bits, method, kind = quantization.quantization_bit, quantization.quantization_method, quantization.quantization_type
    if bits is None:
        return
    if bits not in QUANTIZATION_BITS[method]:
        allowed = ", ".join(map(str, QUANTIZATION_BITS[method]))
        yield Finding(
            ("quantization_bit", "quantization_method"),
            f"`quantization_bit` is {bits}; with `quantization_method: {method}` it can be {allowed}.",
        )
        return
    if kind == "fp8" and (method, bits) != ("torchao", 8):
        yield Finding(
            ("quantization_type", "quantization_method", "quantization_bit"),
            "`quantization_type: fp8` is a format of torchao's 8 bits; set `quantization_method: torchao` and "
            "`quantization_bit: 8`, or another type.",
        )
    if kind == "fp4" and (method, bits) != ("bnb", 4):
        yield Finding(
            ("quantization_type", "quantization_method", "quantization_bit"),
            f"`quantization_type: {kind}` is a format of bitsandbytes' 4 bits; with `quantization_method: {method}` "
            f"and `quantization_bit: {bits}` remove it.",
        )


@rule()
def dora_needs_readable_weights(question: Question) -> Iterator[Finding]:
    """DoRA takes the length of each weight vector, and peft can read compressed ones only from bitsandbytes."""
    quantization, adapter = question.config.quantization, question.config.adapter
    if quantization.quantization_bit is not None and adapter.use_dora and quantization.quantization_method != "bnb":
        yield Finding(
            ("use_dora", "quantization_method"),
            f"`use_dora: true` cannot read weights of {question.cite('quantization_method')}; use "
            "`quantization_method: bnb` or remove `use_dora`.",
        )
    on_cpu = question.config.training.use_cpu or not question.machine.has_gpu
    if quantization.quantization_bit == 8 and adapter.use_dora and quantization.quantization_method == "bnb" and on_cpu:
        yield Finding(
            ("use_dora", "quantization_bit"),
            "`use_dora: true` cannot be combined with `quantization_bit: 8` on a CPU: once bitsandbytes has read 8-bit "
            "weights for it there, it cannot multiply by them any more; set `quantization_bit: 4`.",
        )


@rule()
def scratch_is_not_compressed(question: Question) -> Iterator[Finding]:
    """Random weights have nothing worth compressing, and nothing would train them."""
    if question.config.quantization.quantization_bit is not None and question.config.model.train_from_scratch:
        yield Finding(
            ("train_from_scratch", "quantization_bit"),
            "`train_from_scratch: true` trains every weight, and quantised ones cannot be trained; keep one of them.",
        )


@rule()
def qat_learns_the_weights_it_rounds(question: Question) -> Iterator[Finding]:
    """Rounding for later is learnt by weights that are kept exactly."""
    quantization, adapter = question.config.quantization, question.config.adapter
    if quantization.qat is None:
        return
    if quantization.quantization_bit is not None:
        yield Finding(
            ("qat", "quantization_bit"),
            f"{question.cite('qat')} rounds exact weights while they are trained, and "
            f"{question.cite('quantization_bit')} has none; keep one of them.",
        )
    if question.config.objective.stage == "rm":
        yield Finding(
            ("qat", "stage"),
            f"{question.cite('qat')} is for models that `tunesmith export --quantize` compresses, which reward models "
            "are not; remove it.",
        )
    if adapter.finetuning_type not in ("full", "lora"):
        yield Finding(
            ("qat", "finetuning_type"),
            f"{question.cite('qat')} works with `finetuning_type: full` and `lora`, not with "
            f"{question.cite('finetuning_type')}.",
        )
    if adapter.lora_dropout:
        yield Finding(
            ("qat", "lora_dropout"),
            f"{question.cite('qat')} rounds the sum of a weight and its adapter, so the adapter has no inputs of "
            "its own to drop; remove `lora_dropout`.",
        )
    if adapter.use_dora:
        yield Finding(
            ("qat", "use_dora"),
            f"{question.cite('qat')} rounds the base weights, whose exact lengths `use_dora: true` divides by; "
            "keep one of them.",
        )


@rule()
def qat_details_need_qat(question: Question) -> Iterator[Finding]:
    """Details of rounding mean nothing without it, and integers of 8 bits have one scale per row."""
    quantization = question.config.quantization
    for key in ("qat_start_step", "qat_group_size"):
        if not question.is_set(key):
            continue
        if quantization.qat is None:
            yield Finding((key,), f"{question.cite(key)} has no effect without `qat`; set it too.")
        elif key == "qat_group_size" and quantization.qat == "int8-weight":
            yield Finding((key, "qat"), f"{question.cite(key)} has no effect with `qat: int8-weight`; remove it.")


@rule()
def float8_products_train_weights(question: Question) -> Iterator[Finding]:
    """Adapters are too thin for 8-bit products, and other roundings have products of their own."""
    training, adapter = question.config.training, question.config.adapter
    if not training.fp8:
        return
    if adapter.finetuning_type != "full":
        yield Finding(
            ("fp8", "finetuning_type"),
            f"`fp8: true` computes the products of whole weights, and {question.cite('finetuning_type')} trains "
            "others; set `finetuning_type: full`, or `quantization_bit` to save memory beside an adapter.",
        )
    if question.config.quantization.qat is not None:
        yield Finding(("fp8", "qat"), f"`fp8: true` and {question.cite('qat')} round differently; keep one of them.")
    if training.fp16:
        yield Finding(("fp8", "fp16"), "`fp8: true` is mixed with bfloat16; remove `fp16: true`.")
