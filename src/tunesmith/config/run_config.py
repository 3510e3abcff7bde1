"""The finished configuration of one run: every group, and where each value came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import yaml

from tunesmith.config.adapter import AdapterConfig
from tunesmith.config.coercion import PlainText, render_value
from tunesmith.config.data import DataConfig
from tunesmith.config.distributed import DistributedConfig
from tunesmith.config.export import ExportConfig
from tunesmith.config.generation import GenerationConfig
from tunesmith.config.loading import LoadingConfig
from tunesmith.config.model import ModelConfig
from tunesmith.config.notes import find_notes
from tunesmith.config.objective import PAIR_STAGES, ObjectiveConfig
from tunesmith.config.preference import PreferenceConfig
from tunesmith.config.quantization import QuantizationConfig
from tunesmith.config.reference_policy import ReferenceConfig
from tunesmith.config.settings import GROUPS, all_settings
from tunesmith.config.training import TrainingConfig

_ALWAYS_SAVED = frozenset({"stage", "finetuning_type", "template", "do_train", "seed"})
"""Written even at their defaults: without them a saved file would not say what it is."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from."""

    kind: Literal["default", "implied", "file", "section", "environment", "command line", "override"]
    where: str = ""
    """`run.yaml:3`, `TUNESMITH_SEED`, `--seed`, or for implied values the reason."""

    @property
    def is_set(self) -> bool:
        """Whether somebody wrote the value, rather than it following from others or from nothing."""
        return self.kind not in ("default", "implied")

    def __str__(self) -> str:
        return f"{self.kind} ({self.where})" if self.kind == "implied" else self.where or self.kind


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides what a run does. Two are equal when their values are, wherever these came from."""

    model: ModelConfig = field(default_factory=ModelConfig)
    adapter: AdapterConfig = field(default_factory=AdapterConfig)
    quantization: QuantizationConfig = field(default_factory=QuantizationConfig)
    data: DataConfig = field(default_factory=DataConfig)
    loading: LoadingConfig = field(default_factory=LoadingConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    preference: PreferenceConfig = field(default_factory=PreferenceConfig)
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    distributed: DistributedConfig = field(default_factory=DistributedConfig)
    generation: GenerationConfig = field(default_factory=GenerationConfig)
    export: ExportConfig = field(default_factory=ExportConfig)
    origins: Mapping[str, Origin] = field(default_factory=dict, compare=False, repr=False)
    """Where the value of each key came from; keys at their default are left out."""

    def value(self, key: str) -> object:
        """Return the value of a setting by its flat key."""
        return getattr(getattr(self, all_settings()[key].group), key)

    def origin(self, key: str) -> Origin:
        """Return where the value of a setting came from."""
        return self.origins.get(key, Origin("default"))

    def is_changed(self, key: str) -> bool:
        """Return whether the value of a setting is not its default."""
        return self.value(key) != all_settings()[key].default

    def cite(self, key: str) -> str:
        """Return `key: value`, for messages."""
        value = self.value(key)
        if isinstance(value, tuple):
            shown = ",".join(map(str, value))
        else:
            shown = render_value(PlainText(value) if isinstance(value, str) else _readable(value))
        return f"`{key}: {shown}`"

    def notes(self) -> tuple[str, ...]:
        """Return what a user may not expect of settings that are allowed together, for the plan."""
        return tuple(find_notes(self))

    @property
    def runs(self) -> bool:
        """Whether these are the settings of a run: training, evaluation or prediction is asked for."""
        return self.training.do_train or self.training.do_eval or self.training.do_predict

    @property
    def packs(self) -> bool:
        """Whether rows are packed: as the run says, else yes for plain text and no for conversations."""
        if self.data.packing is None:
            return self.data.neat_packing or self.objective.stage == "pt"
        return self.data.packing

    @property
    def may_share_prompts(self) -> bool:
        """Whether the prompt of a pair may stand in a row once for both completions; model and data decide the rest."""
        return (
            self.objective.stage in PAIR_STAGES
            and self.loading.prefix_sharing is not False
            and self.loading.padding_free is not False
            and not self.training.torch_compile
        )

    def to_flat(self) -> dict[str, object]:
        """Return what is needed to run this again, by flat key: set or changed values, no secrets, lists for tuples."""
        flat: dict[str, object] = {}
        for key, setting in all_settings().items():
            value = self.value(key)
            wanted = self.is_changed(key) or self.origin(key).is_set or key in _ALWAYS_SAVED
            if wanted and not setting.secret:
                flat[key] = list(value) if isinstance(value, tuple) else value
        return flat

    def to_yaml(self) -> str:
        """Return the file that loads to an equal configuration, one paragraph per group."""
        flat = self.to_flat()
        paragraphs = []
        for group in GROUPS:
            part = {key: _readable(value) for key, value in flat.items() if all_settings()[key].group == group}
            if part:
                text = yaml.safe_dump(part, sort_keys=False, allow_unicode=True, width=100)
                paragraphs.append(f"### {group}\n{text}")
        return "\n".join(paragraphs)


def _readable(value: object) -> object:
    """Write `500` for the number 500.0; settings that take fractions read it back as the same number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
