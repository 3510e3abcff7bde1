"""Saved adapters that are continued, merged, or put on a model to run with it."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peft import PeftModel, PeftModelForCausalLM
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from transformers import PreTrainedModel

from tunesmith.config.peft_methods import PEFT_METHODS
from tunesmith.errors import ModelError
from tunesmith.models.adapters.build import renamed_flag_ignored
from tunesmith.models.adapters.record import BaseRecord
from tunesmith.models.adapters.stored import check_has_weights, read_settings
from tunesmith.models.adapters.wrapper import ADAPTER, KeptAdapter, keep_adapter
from tunesmith.models.completeness import explain_damaged_files
from tunesmith.models.heads import find_base_model
from tunesmith.models.reward.build import is_reward_model

logger = logging.getLogger(__name__)


def continue_adapter(model: PreTrainedModel, source: str, record: BaseRecord) -> KeptAdapter:
    """Put a saved adapter on a model and go on training it; it will be saved as one of this model.

    Args:
        model: The base model, which may be another one than the adapter says.
        source: Folder of the adapter.
        record: Of the base model, saved with the adapter.
    """
    return keep_adapter(attach_adapter(model, source, is_trainable=True), record)


def find_foreign_base(source: str, *bases: BaseRecord) -> tuple[str | None, str | None]:
    """Find out whether an adapter was trained beside another model than those it is put on.

    Args:
        source: Folder of the adapter.
        bases: The model as it was loaded, and as it is after earlier adapters were merged.

    Returns:
        The name that the adapter gives its model where that is another one, and the first weight that differs where the
        adapter carries a record of the weights. Names are compared by their last parts: the same model may lie
        elsewhere, or come from a hub.
    """
    recorded = BaseRecord.load(source)
    if recorded is not None:
        differences = [recorded.find_difference(base) for base in bases]
        return (recorded.name, differences[0]) if all(differences) else (None, None)
    name = read_settings(source).base_model_name_or_path
    return (name if name and _last_part(name) != _last_part(bases[0].name) else None), None


def note_foreign_bases(adapters: Sequence[str], *bases: BaseRecord) -> list[str]:
    """Return a note for each adapter that was trained beside another model than the one it is put on.

    Where the adapter carries a record of that model's weights, these decide: the same weights may have another name,
    and other weights the same. Then the answers are not what was trained, so it is said at once, too.
    """
    notes = []
    for adapter in adapters:
        name, differing = find_foreign_base(adapter, *bases)
        if differing is not None:
            note = (
                f"the adapter {adapter} was trained beside other weights ({name}) than those it is put on "
                f"({bases[0].name}): they differ in {differing}. Unless that is meant, give the model it was trained on"
            )
            logger.warning("%s.", note)
            notes.append(note)
        elif name is not None:
            notes.append(f"the adapter {adapter} was trained on {name}, and is put on {bases[0].name}")
    return notes


def _last_part(name: str) -> str:
    return name.replace("\\", "/").rstrip("/").rpartition("/")[2]


def find_merge_obstacle(source: str) -> str | None:
    """Return why a saved adapter cannot be added to the weights of its model, `None` where it can."""
    kind = str(read_settings(source).peft_type.value).lower()
    method = PEFT_METHODS.get(kind)
    if method is None:
        return f"its kind ({kind}) is not one that is known here"
    return None if method.merges else f"of its kind ({kind}), {method.obstacle}"


def merge_adapters(model: PreTrainedModel, sources: Sequence[str]) -> PreTrainedModel:
    """Add saved adapters to the weights of a model, one after the other, and return the plain model."""
    for source in sources:
        if (obstacle := find_merge_obstacle(source)) is not None:
            raise ModelError(
                f"adapter_name_or_path: {source} cannot be merged: {obstacle}. Only the last adapter can be of this "
                "kind, and stays apart from the weights."
            )
        merged = attach_adapter(model, source).merge_and_unload()
        assert isinstance(merged, PreTrainedModel), "unloading gives the base model back"
        model = merged
        logger.info("merged the adapter %s", source)
    return model


def attach_adapter(model: PreTrainedModel, source: str, *, is_trainable: bool = False) -> PeftModel:
    """Put a saved adapter on a model, every weight of it.

    Args:
        model: The base model.
        source: Folder of the adapter.
        is_trainable: Whether its weights will be trained.

    Raises:
        ModelError: A file is missing or damaged, or the adapter does not fit: a shape differs, or some of its weights
            have no place, or places of it no weights. peft itself leaves such weights out.
    """
    with _explaining(model, source):
        settings = read_settings(source)
        settings.inference_mode = not is_trainable
        settings.base_model_name_or_path = model.name_or_path  # of which it is one from here on
        # The wrapper of classifiers adds a trained head to any adapter, also to one that brings none.
        wrapped = (PeftModel if is_reward_model(model) else PeftModelForCausalLM)(model, settings)
        result = wrapped.load_adapter(source, ADAPTER, is_trainable=is_trainable)
    _check_whole(model, wrapped, source, result)
    if not is_trainable:
        _untie_adapted_ends(model)
    return wrapped


def attach_further_adapter(wrapped: PeftModel, source: str, name: str) -> None:
    """Put one more saved adapter on a model that has some, under a name of its own; which is active stays.

    Raises:
        ModelError: As in `attach_adapter`.
    """
    model = find_base_model(wrapped)
    with _explaining(model, source):
        result = wrapped.load_adapter(source, name)
    _check_whole(model, wrapped, source, result)
    _untie_adapted_ends(model)


@contextmanager
def _explaining(model: PreTrainedModel, source: str) -> Iterator[None]:
    """Say in our words why the adapter in a folder cannot be put on a model."""
    check_has_weights(source)
    try:
        with renamed_flag_ignored(), explain_damaged_files(source, Path(source), "adapter_name_or_path"):
            yield
    except (RuntimeError, ValueError, OSError) as error:
        raise _misfit(model, source, _first_detail(error)) from error


def _check_whole(model: PreTrainedModel, wrapped: PeftModel, source: str, result: Any) -> None:
    """Refuse an adapter of which something was left out; peft puts learnt prompts in whole, or fails."""
    if wrapped.active_peft_config.is_prompt_learning:
        return
    if result.unexpected_keys:
        raise _misfit(model, source, f"nothing in the model takes its weight {result.unexpected_keys[0]}")
    missing = _without_shared(wrapped, result.missing_keys)
    if missing:
        raise _misfit(model, source, f"it has no weight for {missing[0]}")


def _without_shared(model: PeftModel, missing: Sequence[str]) -> list[str]:
    """Leave out the names that are other ones of weights that were loaded: methods share weights between layers."""
    state = model.state_dict(keep_vars=True)
    loaded = {id(value) for name, value in state.items() if name not in missing}
    return [name for name in missing if name not in state or id(state[name]) not in loaded]


def _untie_adapted_ends(model: PreTrainedModel) -> None:
    """Give the head weights of its own where an adapter changes it or the embedding, but not both alike.

    They share one matrix otherwise, and merging what was learnt for one end would change the other end too.
    """
    text = model.config.get_text_config()
    first, last = model.get_input_embeddings(), model.get_output_embeddings()
    if not text.tie_word_embeddings or not any(isinstance(end, BaseTunerLayer) for end in (first, last)):
        return
    head = last.get_base_layer() if isinstance(last, BaseTunerLayer) else last
    head.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=False)
    model.config.tie_word_embeddings = text.tie_word_embeddings = False


def _misfit(model: PreTrainedModel, source: str, reason: str) -> ModelError:
    return ModelError(
        f"adapter_name_or_path: {source} does not fit {type(model).__name__} or cannot be loaded: {reason}. "
        "Was it trained on another base model?"
    )


def _first_detail(error: Exception) -> str:
    """Return the first line of a message that says something; torch begins with a headline that does not."""
    lines = [line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return next((line for line in lines if not line.endswith(":")), lines[0])
