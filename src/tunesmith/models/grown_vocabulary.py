"""Rows for the tokens of a run, and who trains them; rows that nothing would train are refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tunesmith.config import AdapterConfig, RunConfig
from tunesmith.errors import ModelError
from tunesmith.models.locations import AdaptedLocation, ModelLocation
from tunesmith.models.tokenizer import load_own_vocabulary
from tunesmith.models.vocabulary import (
    find_adapted_rows,
    find_end_names,
    fit_vocabulary,
    read_new_tokens,
    train_new_rows,
)


@dataclass(frozen=True, slots=True)
class GrownVocabulary:
    """What was done about the rows of a model."""

    adapter: AdapterConfig
    """Settings of the adapter, which trains the rows too where these are new."""

    note: str
    """For the plan; empty where nothing was done."""


def grow_vocabulary(
    config: RunConfig,
    base: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    found: AdaptedLocation,
    *,
    is_trainable: bool,
) -> GrownVocabulary:
    """Give every token a row where that is asked for, and see to it that new rows are trained and saved.

    Args:
        config: Of the run.
        base: Without adapters; changed in place.
        tokenizer: Of the run, with its new tokens.
        found: Where the model is, and its saved adapters.
        is_trainable: Whether something will be trained.

    Raises:
        ModelError: There are more tokens than rows, or rows that nothing would train.
    """
    new = read_new_tokens(config.model)
    adapted_rows = find_adapted_rows(found.adapters, find_end_names(base))
    rows = base.get_input_embeddings().weight.shape[0]
    if not (new.all or config.model.resize_vocab or adapted_rows not in (None, rows)):
        if len(tokenizer) > rows:
            raise ModelError(
                f"model_name_or_path: the tokenizer has {len(tokenizer)} tokens, but the model has embeddings for "
                f"{rows}. Use the tokenizer of this model, or set resize_vocab: true to give the others rows that are "
                "trained."
            )
        return GrownVocabulary(config.adapter, "")
    known = load_own_vocabulary(config.model, found.base) if new.all else {}
    if is_trainable and found.adapters:
        _check_adapters_know(config, found, new.all, adapted_rows)
    note = fit_vocabulary(base, tokenizer, new, known, config.model.init_special_tokens, rows=adapted_rows)
    begins_anew = not found.adapters or (config.adapter.create_new_adapter and adapted_rows is None)
    trains = is_trainable and bool(note) and begins_anew
    if is_trainable and note and not begins_anew and adapted_rows is None:
        raise ModelError(
            f"adapter_name_or_path: {found.adapters[-1]} was trained without the new tokens and has no place for their "
            "rows. Set create_new_adapter: true to train a new adapter with them, on top of this one."
        )
    return GrownVocabulary(train_new_rows(config.adapter, base) if trains else config.adapter, note)


def _check_adapters_know(
    config: RunConfig, found: AdaptedLocation, tokens: tuple[str, ...], adapted_rows: int | None
) -> None:
    """Refuse tokens that saved adapters were trained without, where these bring an embedding of their own."""
    if adapted_rows is None:
        return
    known = _vocabulary_beside(config, found)
    unknown = [token for token in tokens if token not in known]
    if unknown and known:
        raise ModelError(
            f"add_tokens: {unknown[0]!r} is new to the adapter {found.adapters[-1]}, which was trained with other new "
            "tokens and brings an embedding without it. Merge the adapter with `tunesmith export` first, and give the "
            "result as model_name_or_path."
        )


def _vocabulary_beside(config: RunConfig, found: AdaptedLocation) -> Mapping[str, int]:
    folder = Path(found.adapters[-1])
    if not (folder / "tokenizer_config.json").is_file():
        return {}
    return load_own_vocabulary(config.model, ModelLocation("folder", str(folder), folder))
