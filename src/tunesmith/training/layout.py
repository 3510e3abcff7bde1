"""How the rows of a micro-batch are laid out: end to end without padding, or side by side with it."""

from tunesmith.config import RunConfig
from tunesmith.config.peft_methods import PEFT_METHODS
from tunesmith.data.batches import BatchLayout
from tunesmith.errors import ConfigError
from tunesmith.models import AttentionChoice
from tunesmith.models.flex import FLEX
from tunesmith.models.segments import SEGMENTS


def resolve_layout(config: RunConfig, attention: AttentionChoice) -> BatchLayout:
    """Return the layout that `padding_free` asks for, or that suits the attention in use.

    Raises:
        ConfigError: Batches without padding were asked for, and the attention would pay for every pair across rows, or
            compiling would stop at it.
    """
    asked, compiles = config.loading.padding_free, config.training.torch_compile
    method = PEFT_METHODS.get(config.adapter.finetuning_type)
    if method is not None and method.is_prompt:  # a learnt prompt stands in front of each row
        return "padded"
    if asked is True and not attention.supports_flat:
        another = "" if config.model.flash_attn == "auto" else "flash_attn: auto, or "  # auto is the best there is
        raise ConfigError(
            f"padding_free is true, but the attention in use ({attention.implementation}: {attention.reason}) cannot "
            f"keep rows of one batch apart without computing them against each other. Set {another}padding_free: false."
        )
    if compiles and attention.implementation in {SEGMENTS, FLEX} and (asked is True or config.packs):
        setting, way_out = ("packing", "flash_attn: sdpa") if config.packs else ("padding_free", "padding_free: false")
        raise ConfigError(
            f"torch_compile and {setting} do not go together with this attention ({attention.implementation}): its "
            "calls depend on the lengths of the rows, so every batch would be compiled anew. "
            f"Set {way_out}, or leave torch_compile out."
        )
    if asked == "auto":
        return "flat" if attention.supports_flat and not compiles else "padded"
    return "flat" if asked else "padded"
