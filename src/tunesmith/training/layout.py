"""How the rows of a micro-batch are laid out: end to end without padding, or side by side with it."""

from tunesmith.config import RunConfig
from tunesmith.data.batches import BatchLayout
from tunesmith.errors import ConfigError
from tunesmith.models import AttentionChoice


def resolve_layout(config: RunConfig, attention: AttentionChoice) -> BatchLayout:
    """Return the layout that `padding_free` asks for, or that suits the attention in use.

    Raises:
        ConfigError: Batches without padding were asked for, and the attention would pay for every pair across rows.
    """
    asked = config.loading.padding_free
    if asked is True and not attention.supports_flat:
        another = "" if config.model.flash_attn == "auto" else "flash_attn: auto, or "  # auto is the best there is
        raise ConfigError(
            f"padding_free is true, but the attention in use ({attention.implementation}: {attention.reason}) cannot "
            "keep rows of one batch apart without computing them against each other. "
            f"Set {another}padding_free: false."
        )
    return "flat" if asked is True or (asked == "auto" and attention.supports_flat) else "padded"
