"""`adapter_options`: names and kinds of values, compared with peft's configuration of the method."""

import dataclasses
import difflib
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from peft import PeftConfig
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from peft.utils import PeftType

from tunesmith.config import AdapterConfig
from tunesmith.config.peft_methods import PEFT_METHODS
from tunesmith.errors import ConfigError

_OWN_SETTINGS: Mapping[str, str] = {
    "target_modules": "lora_target",
    "target_parameters": "lora_target",
    "modules_to_save": "additional_target",
}
_OWN_LORA_SETTINGS: Mapping[str, str] = {
    "r": "lora_rank",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "use_rslora": "use_rslora",
    "use_dora": "use_dora",
    "init_lora_weights": "init_lora_weights",
    "rank_pattern": "lora_rank_pattern",
    "alpha_pattern": "lora_alpha_pattern",
}
_OWN_OFT_SETTINGS: Mapping[str, str] = {
    "r": "oft_rank",
    "oft_block_size": "oft_block_size",
    "module_dropout": "module_dropout",
}
_OF_THE_RUN = frozenset(
    {"task_type", "peft_type", "peft_version", "inference_mode", "base_model_name_or_path", "revision", "auto_mapping"}
)
"""Fields of every peft configuration that follow from the run."""

_WORDS: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    list: "a list",
    tuple: "a list",
    set: "a list",
    dict: "a mapping",
    type(None): "null",
}


def find_config_class(kind: str) -> type[PeftConfig]:
    """Return peft's configuration of a method."""
    chosen: type[PeftConfig] = PEFT_TYPE_TO_CONFIG_MAPPING[PeftType(kind.upper())]
    return chosen


def check_adapter_options(config: AdapterConfig) -> None:
    """Compare `adapter_options` with peft's configuration of the method.

    Raises:
        ConfigError: A name that peft does not know there, or that has a setting of its own here, or a value of another
            kind than peft's.
    """
    kind, options = config.finetuning_type, config.adapter_options
    if kind not in PEFT_METHODS or not options:
        return
    fields = {each.name: each for each in dataclasses.fields(find_config_class(kind)) if each.name not in _OF_THE_RUN}
    hints = get_type_hints(find_config_class(kind))
    own = _settings_of(kind)
    for name, value in options.items():
        if name in own:
            raise ConfigError(f"adapter_options: `{name}` has a setting of its own; set `{own[name]}` instead.")
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1)
            hint = f" Did you mean `{near[0]}`?" if near else ""
            listed = ", ".join(field for field in fields if field not in own)
            raise ConfigError(f"adapter_options: `{name}` is not an option of {kind}.{hint} It has {listed}.")
        default = fields[name].default  # which is of another kind than peft says for some
        if not (type(value) is type(default) and value == default) and not _fits(value, hints[name]):
            raise ConfigError(f"adapter_options: `{name}` is {value!r}; {kind} takes {_describe(hints[name])} there.")


def _settings_of(kind: str) -> Mapping[str, str]:
    own = {"lora": _OWN_LORA_SETTINGS, "oft": _OWN_OFT_SETTINGS}.get(kind, {})
    return {**_OWN_SETTINGS, **own} if PEFT_METHODS[kind].place != "none" else own


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the kind that an annotation says, as far as YAML has kinds."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    kind = origin or hint
    if kind in (list, tuple, set):
        inner = [part for part in parts if part is not Ellipsis]
        return isinstance(value, list | tuple) and (not inner or all(any(_fits(v, p) for p in inner) for v in value))
    if kind is dict or dataclasses.is_dataclass(kind):
        return isinstance(value, Mapping)
    if kind in (int, float):
        return isinstance(value, int | float) and not isinstance(value, bool) and (kind is float or value == int(value))
    return isinstance(value, kind) if kind in (bool, str, type(None)) else True


def _describe(hint: Any) -> str:
    """Return an annotation in the words of a settings file."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        # Sorted, as Python keeps one of two unions whose parts differ in their order alone.
        return " or ".join(sorted({_describe(part) for part in parts}, key=lambda word: (word == "null", word)))
    if origin is Literal:
        return "one of " + ", ".join(map(str, parts))
    kind = origin or hint
    return "a mapping" if dataclasses.is_dataclass(kind) else _WORDS.get(kind, "something else")
