"""What of a model is trained: everything, some layers, or an adapter beside frozen weights.

modules.py   what a model is made of, by name
targets.py   lora_target -> modules
options.py   adapter_options, compared with peft's configurations
build.py     settings -> peft's configuration -> a new adapter
begin.py     first weights that are computed: PiSSA, OLoRA, EVA, LoRA-GA, LoftQ
wrapper.py   how an adapter is saved and resumed
record.py    which model an adapter belongs to
stored.py    the files of a saved adapter
lora.py      saved adapters, continued and merged
vllm.py      whether vLLM can serve a saved adapter
freeze.py    some layers whole
expand.py    new blocks for LLaMA Pro
apply.py     the order of everything here
"""

from tunesmith.models.adapters.apply import AdaptedModel, apply_adapters
from tunesmith.models.adapters.lora import attach_adapter
from tunesmith.models.adapters.options import check_adapter_options
from tunesmith.models.adapters.targets import resolve_lora_targets

__all__ = ["AdaptedModel", "apply_adapters", "attach_adapter", "check_adapter_options", "resolve_lora_targets"]
