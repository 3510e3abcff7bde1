"""Switching dropout off in a model that is trained.

Preferences compare a policy with a reference. With dropout two runs of the very same weights differ, which would be
taken for a difference between the two.
"""

from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn


def switch_dropout_off(model: nn.Module) -> None:
    """Take dropout out of a model for good, training mode or not: of its layers, its attention and its adapters."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(module, BaseTunerLayer) and "lora_dropout" in module._modules:
            # No layer at all, rather than one that does nothing: faster adapters ask for that.
            dropouts = module.get_submodule("lora_dropout")
            for name, _ in list(dropouts.named_children()):
                dropouts.register_module(name, nn.Identity())
        if "attention_dropout" in vars(module):  # a plain number that attention functions are handed
            setattr(module, "attention_dropout", 0.0)  # noqa: B010 - to the type checker modules hold modules alone
