"""From what is stored to a reward model: whose head it has, and when a new one may be drawn."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import cached_file

from tunesmith.config import RunConfig
from tunesmith.errors import ModelError
from tunesmith.models.locations import AdaptedLocation
from tunesmith.models.reward.build import build_reward_model, set_head, set_padding
from tunesmith.models.reward.stored import (
    StoredHead,
    adapter_has_score,
    explain_missing_head,
    find_stored_head,
    is_classifier_config,
    load_classifier_head,
)


@dataclass(frozen=True, slots=True)
class RewardBase:
    """A reward model before its adapters, and where its head comes from."""

    model: PreTrainedModel
    note: str


def load_reward_base(
    config: RunConfig,
    found: AdaptedLocation,
    model_config: PreTrainedConfig,
    tokenizer: PreTrainedTokenizerBase,
    load: Callable[[Any], PreTrainedModel],
    *,
    is_trainable: bool,
) -> RewardBase:
    """Load the body and the head that adapters will be put on.

    Args:
        config: Of the run.
        found: The base and its adapters.
        model_config: Of the base.
        tokenizer: Its padding token goes into the configuration.
        load: Loads the base as the automatic class that it is given.
        is_trainable: Whether a run trains it; only then may a head be new.

    Raises:
        ModelError: There is no head where one is needed, or it does not fit.
    """
    hidden_size = model_config.get_text_config().hidden_size
    _check_continued(config, found, is_trainable=is_trainable)
    if is_classifier_config(model_config.to_dict()) and not config.model.train_from_scratch:
        # Before the weights where they are here already: a missing head is then found at once and said well.
        if found.base.path is not None and load_classifier_head(found.base.path, hidden_size) is None:
            raise explain_missing_head(found, config.model)
        model = load(AutoModelForSequenceClassification)
        set_head(model, load_classifier_head(_folder_of(config, found), hidden_size) or _head_of(model))
        set_padding(model, tokenizer)
        return RewardBase(model, f"the score head is that of {found.base.name}")
    stored = find_stored_head(found, config.model, hidden_size)
    if stored is None and not is_trainable and not any(map(adapter_has_score, found.adapters)):
        raise explain_missing_head(found, config.model)
    model = build_reward_model(load(AutoModelForCausalLM), tokenizer, stored)
    return RewardBase(model, _describe(found, None if stored is None else stored.file))


def check_writes_text(found: AdaptedLocation, stage: str) -> None:
    """Refuse the adapter of a reward model where a language model is wanted: on one its head has no place.

    Raises:
        ModelError: One of the adapters has a score head.
    """
    for adapter in filter(adapter_has_score, found.adapters):
        raise ModelError(
            f"adapter_name_or_path: {adapter} belongs to a reward model: it brings a score head, and stage {stage} "
            "needs a model that writes text. Name another adapter, or rate texts with it: tunesmith score."
        )


def _head_of(model: PreTrainedModel) -> StoredHead:
    """Take the head as transformers loaded it, from a kind of file that is not read here."""
    return StoredHead(model.score.weight.detach().float(), None, Path(model.name_or_path))


def _describe(found: AdaptedLocation, file: Path | None) -> str:
    owners = [adapter for adapter in found.adapters if adapter_has_score(adapter)]
    if owners:
        return f"the score head is that of the adapter {owners[-1]}"
    if file is not None:
        return f"the score head is that of {file}"
    return f"the score head is new: {found.base.name} has none"


def _check_continued(config: RunConfig, found: AdaptedLocation, *, is_trainable: bool) -> None:
    adapter = config.adapter
    continues = is_trainable and found.adapters and adapter.finetuning_type == "lora" and not adapter.create_new_adapter
    if continues and not adapter_has_score(found.adapters[-1]):
        raise ModelError(
            f"adapter_name_or_path: {found.adapters[-1]} has no score head among its trained modules, so training "
            "could not go on with one. Set create_new_adapter: true, which merges it and begins a new one with a head."
        )


def _folder_of(config: RunConfig, found: AdaptedLocation) -> Path:
    if found.base.path is not None:
        return found.base.path
    settings = cached_file(
        found.base.name,
        "config.json",
        revision=config.model.model_revision,
        cache_dir=config.model.cache_dir,
        token=config.model.hf_hub_token,
    )
    assert settings is not None, "it was read before"
    return Path(settings).parent
