"""What of a model is trained: everything, some layers, or a LoRA adapter beside frozen weights.

modules.py   what a model is made of, by name
targets.py   lora_target -> modules
lora.py      new, continued and merged adapters
freeze.py    some layers whole
apply.py     the order of everything here
"""

from tunesmith.models.adapters.apply import AdaptedModel, apply_adapters
from tunesmith.models.adapters.lora import attach_adapter
from tunesmith.models.adapters.targets import resolve_lora_targets

__all__ = ["AdaptedModel", "apply_adapters", "attach_adapter", "resolve_lora_targets"]
