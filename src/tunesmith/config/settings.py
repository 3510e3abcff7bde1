"""One table of every setting: its key, group, kind of value and default, read from the group dataclasses."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from tunesmith.config.adapter import AdapterConfig
from tunesmith.config.coercion import (
    Boolean,
    Kind,
    ListOf,
    MappingOf,
    MismatchError,
    Number,
    Text,
    Words,
    is_null,
)
from tunesmith.config.constraints import (
    IsPath,
    IsShareOrCount,
    KeepsCommas,
    Range,
    ScalarMapping,
    TakesEntries,
    TextMapping,
    TreeMapping,
)
from tunesmith.config.data import DataConfig
from tunesmith.config.distributed import DistributedConfig
from tunesmith.config.export import ExportConfig
from tunesmith.config.generation import GenerationConfig
from tunesmith.config.loading import LoadingConfig
from tunesmith.config.model import ModelConfig
from tunesmith.config.objective import ObjectiveConfig
from tunesmith.config.preference import PreferenceConfig
from tunesmith.config.quantization import QuantizationConfig
from tunesmith.config.reference_policy import ReferenceConfig
from tunesmith.config.training import TrainingConfig

GROUPS: Mapping[str, type] = {
    "model": ModelConfig,
    "adapter": AdapterConfig,
    "quantization": QuantizationConfig,
    "data": DataConfig,
    "loading": LoadingConfig,
    "objective": ObjectiveConfig,
    "preference": PreferenceConfig,
    "reference": ReferenceConfig,
    "training": TrainingConfig,
    "distributed": DistributedConfig,
    "generation": GenerationConfig,
    "export": ExportConfig,
}
"""Group dataclasses by the name of their attribute in `RunConfig`, in the order of the reference."""

_MAPPINGS: Mapping[object, MappingOf] = {
    ScalarMapping: MappingOf("scalar"),
    TextMapping: MappingOf("text"),
    TreeMapping: MappingOf("tree"),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of the configuration."""

    key: str
    group: str
    kinds: tuple[Kind, ...]
    """Sorts of value it takes, the narrowest first."""

    optional: bool
    """Whether it can be empty (null)."""

    default: object
    secret: bool
    """Whether its value must not be shown or saved."""

    @property
    def is_switch(self) -> bool:
        """Whether the bare flag `--key` means true."""
        return any(isinstance(kind, Boolean) for kind in self.kinds)

    @property
    def takes_mapping(self) -> bool:
        """Whether parts of it can be set as `key.part=value`."""
        return any(isinstance(kind, MappingOf) for kind in self.kinds)

    def convert(self, value: object) -> object:
        """Return the typed value, or raise `MismatchError` with a hint."""
        if self._means_nothing(value):
            if self.optional:
                return None
            if any(isinstance(kind, ListOf | MappingOf) for kind in self.kinds):
                return () if isinstance(self.default, tuple) else {}
            raise MismatchError(" Leave it out to get the default.")
        hint: str = ""
        path: tuple[str, ...] = ()
        for kind in self.kinds:
            try:
                return kind.convert(value)
            except MismatchError as error:
                hint, path = hint or str(error), path or error.path
        raise MismatchError(hint, path)

    def render_allowed(self) -> str:
        """Return what is allowed, in words."""
        parts = [kind.render() for kind in self.kinds]
        return " or ".join([*parts, "null"] if self.optional else parts)

    def _means_nothing(self, value: object) -> bool:
        takes_text = any(isinstance(kind, Text) for kind in self.kinds)
        if not is_null(value, quoted=not takes_text):
            return False
        words = [kind.item if isinstance(kind, ListOf) else kind for kind in self.kinds]
        return value is None or not any(isinstance(kind, Words) and str(value).lower() in kind.words for kind in words)


@cache
def all_settings() -> Mapping[str, Setting]:
    """Return every setting by key, in the order of the groups and their fields."""
    table: dict[str, Setting] = {}
    for group, cls in GROUPS.items():
        hints = get_type_hints(cls, include_extras=True)
        for item in dataclasses.fields(cls):
            kinds, optional = _build_kinds(hints[item.name])
            default = item.default
            if item.default_factory is not dataclasses.MISSING:
                default = item.default_factory()
            table[item.name] = Setting(item.name, group, kinds, optional, default, secret=not item.repr)
    return table


def _build_kinds(annotation: Any) -> tuple[tuple[Kind, ...], bool]:
    if annotation in _MAPPINGS or get_origin(annotation) not in (Union, UnionType):
        return (_build_kind(annotation),), False
    parts = get_args(annotation)
    kinds = [_build_kind(part) for part in parts if part is not NoneType]
    kinds.sort(key=lambda kind: isinstance(kind, Text))  # text takes anything, so it is tried last
    return tuple(kinds), NoneType in parts


def _build_kind(annotation: Any) -> Kind:
    if annotation in _MAPPINGS:
        return _MAPPINGS[annotation]
    origin = get_origin(annotation)
    extras: list[Any] = []
    if origin is Annotated:
        annotation, *extras = get_args(annotation)
        origin = get_origin(annotation)
    if origin is Literal:
        return Words(get_args(annotation))
    if origin is tuple:
        item = _build_kind(get_args(annotation)[0])
        return ListOf(item, keeps_commas=KeepsCommas() in extras, takes_entries=TakesEntries() in extras)
    if annotation is bool:
        return Boolean()
    if annotation in (int, float):
        allowed = next((extra for extra in extras if isinstance(extra, Range)), Range())
        return Number(annotation is int, allowed, is_share_or_count=IsShareOrCount() in extras)
    if annotation is str:
        return Text(is_path=IsPath() in extras)
    raise TypeError(f"no kind of value is known for the annotation {annotation}")
