"""A model ready to train or to run, from wherever it is kept.

load.py           the order of everything here: load_model
base_weights.py   configuration and weights of the base model
tokenizer.py      load_tokenizer
locations.py      folder, GGUF file, adapter folder or hub id
gguf/             weights and tokenizers of GGUF files
attention.py      which attention is used; isolation.py proves that it keeps samples apart
segments.py       attention for several samples in one row; branches.py for samples that share their beginning
heads.py          the output head, taken apart from the body; families.py says how families differ
adapters/         what is trained: everything, some layers, or LoRA
quantization/     weights in fewer bits
precision.py      number types; devices.py, memory.py and checkpointing.py fit a run to its machine
rope.py           longer rows than the model was trained with
summary.py        trained and total parameters
"""

from tunesmith.models.attention import AttentionChoice, resolve_attention
from tunesmith.models.base_weights import load_base_config
from tunesmith.models.devices import resolve_device
from tunesmith.models.heads import HiddenStates, LanguageHead, resolve_head, run_body
from tunesmith.models.isolation import check_isolation
from tunesmith.models.load import LoadedModel, load_model
from tunesmith.models.precision import Precision, resolve_precision
from tunesmith.models.summary import ParameterSummary
from tunesmith.models.tokenizer import load_tokenizer

__all__ = [
    "AttentionChoice",
    "HiddenStates",
    "LanguageHead",
    "LoadedModel",
    "ParameterSummary",
    "Precision",
    "check_isolation",
    "load_base_config",
    "load_model",
    "load_tokenizer",
    "resolve_attention",
    "resolve_device",
    "resolve_head",
    "resolve_precision",
    "run_body",
]
