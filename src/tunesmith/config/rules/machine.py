"""Rules about this machine: what needs a GPU is refused where there is none."""

from collections.abc import Iterator

from tunesmith.config.rules.registry import Finding, Question, rule

_WAY_OUT = {
    "fp16": "Remove it: the precision is then chosen for this machine.",
    "tf32": "Remove it.",
    "fp8": "Remove it: the precision is then chosen for this machine.",
    "flash_attn": "Set `flash_attn: auto`.",
    "optim": "Use adamw_torch_fused or adafactor.",
    "ddp_backend": "Remove it or use gloo.",
    "activation_offload": "Remove it: the memory of the host is all there is.",
    "enable_liger_kernel": "Remove it; `lean_layers` does here what can be done.",
}


@rule("train", "generate")
def gpu_settings_need_a_gpu(question: Question) -> Iterator[Finding]:
    """Some settings have a meaning on GPUs alone."""
    training, config = question.config.training, question.config
    if question.machine.has_gpu and not training.use_cpu:
        return
    reason = "`use_cpu` is true" if training.use_cpu else question.machine.reason
    asking = {
        "fp16": bool(training.fp16),
        "tf32": bool(training.tf32),
        "fp8": training.fp8,
        "flash_attn": config.model.flash_attn in ("fa2", "fa3"),
        "optim": training.optim.startswith("paged_")
        or training.optim == "adalomo"
        or (training.use_galore and training.optim.endswith("_8bit")),
        "activation_offload": config.model.activation_offload,
        "enable_liger_kernel": config.model.enable_liger_kernel,
        "ddp_backend": config.distributed.ddp_backend == "nccl",
    }
    for key, asks in asking.items():
        if asks:
            keys = (key, "use_cpu") if training.use_cpu else (key,)
            yield Finding(keys, f"{question.cite(key)} needs a GPU, and {reason}. {_WAY_OUT[key]}")
