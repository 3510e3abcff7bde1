"""Rows of the embedding and the output head, one for each token."""

import logging
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tunesmith.errors import ModelError
from tunesmith.models.heads import find_base_model
from tunesmith.models.vocabulary.tokens import NewTokens

logger = logging.getLogger(__name__)

Beginning = Literal["mean_init", "noise_init", "desc_init", "desc_init_w_noise"]

PADDED_TO = 64
"""Rows come in multiples of this: matrix units are fastest at such sizes."""


def fit_vocabulary(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    new: NewTokens,
    known: Mapping[str, int],
    beginning: Beginning,
    *,
    rows: int | None = None,
) -> str:
    """Give every token a row, and every new token a row that begins with something sensible.

    Args:
        model: Its embedding and head are changed in place; where these share weights, they still do afterwards.
        tokenizer: With the new tokens.
        new: What was added, with descriptions.
        known: The model's own vocabulary, without additions: rows of its tokens are left alone, wherever they are.
        beginning: How rows of new tokens begin.
        rows: Number of rows that a saved adapter needs; chosen here when `None`.

    Returns:
        What was done, for the plan; empty when nothing was.

    Raises:
        ModelError: An adapter has fewer rows than there are tokens.
    """
    present = model.get_input_embeddings().weight.shape[0]
    wanted = _resolve_rows(present, len(tokenizer), rows)
    if wanted != present:
        _resize(model, present, wanted)
    vocabulary = tokenizer.get_vocab()
    asked = {token for token in new.all if token not in known}
    fresh = {token: row for token, row in vocabulary.items() if row >= present or token in asked}
    fresh = dict(sorted(fresh.items(), key=itemgetter(1)))  # noise is drawn in this order, the same in every process
    for end in _ends(model):
        _begin_rows(end.weight, fresh, new.descriptions, tokenizer, beginning)
    if wanted == present and not fresh:
        return ""
    shared = "shared by embedding and head" if len(_ends(model)) == 1 else "in embedding and head"
    return f"vocabulary: {len(fresh)} new tokens, {present:,} -> {wanted:,} rows, {shared}"


def check_vocabulary(model: nn.Module, tokenizer: PreTrainedTokenizerBase) -> None:
    """Prove that configuration, embedding, head and tokenizer agree, as what is saved has to load again.

    Raises:
        ModelError: They do not.
    """
    base = find_base_model(model)
    size = int(base.config.get_text_config().vocab_size)
    ends = {"embedding": base.get_input_embeddings(), "head": base.get_output_embeddings()}
    for name, end in ends.items():
        weight = _find_weight(end)
        if weight is not None and weight.shape[0] != size:
            raise ModelError(
                f"resize_vocab: the model's {name} has {weight.shape[0]:,} rows and its configuration says {size:,}, "
                "so it could not be loaded again; nothing was saved. Please report this with the name of the model."
            )
    if len(tokenizer) > size:
        raise ModelError(
            f"resize_vocab: the tokenizer has {len(tokenizer):,} tokens and the model {size:,} rows, so some tokens "
            "would have no row; nothing was saved. Set resize_vocab: true."
        )


def _find_weight(end: nn.Module | None) -> Tensor | None:
    """Return the weight of an embedding or head, inside whatever wraps it; `None` for packed weights."""
    if end is None:
        return None
    named = [(name, value) for name, value in end.named_parameters() if name.endswith("weight") and "lora_" not in name]
    weights = [value for _, value in named if value.dim() == 2 and type(value).__name__ != "Params4bit"]
    return weights[-1] if weights else None


def _resolve_rows(present: int, num_tokens: int, rows: int | None) -> int:
    if rows is not None:
        if rows < num_tokens:
            raise ModelError(
                f"adapter_name_or_path: the adapter was trained with {rows:,} rows, and the tokenizer has "
                f"{num_tokens:,} tokens. Use the tokenizer beside the adapter, without add_tokens and "
                "add_special_tokens."
            )
        return rows
    if num_tokens <= present:
        return present
    return -(-num_tokens // PADDED_TO) * PADDED_TO


def _resize(model: PreTrainedModel, present: int, wanted: int) -> None:
    model.resize_token_embeddings(wanted, mean_resizing=False)
    for end in _ends(model):  # padding too: a row of noise would compete with real tokens
        weight = end.weight.data
        weight[present:] = weight[:present].float().mean(dim=0).to(weight.dtype)


def _ends(model: PreTrainedModel) -> list[Any]:
    """Return embedding and head, one of them where they share their weights."""
    first, last = model.get_input_embeddings(), model.get_output_embeddings()
    if last is None or last.weight is first.weight:
        return [first]
    return [first, last]


def _begin_rows(
    weight: Tensor,
    fresh: Mapping[str, int],
    descriptions: Mapping[str, str],
    tokenizer: PreTrainedTokenizerBase,
    beginning: Beginning,
) -> None:
    """Set the rows of new tokens. Noise is normal with a deviation of 1 / sqrt(width), as LLaMA-Factory's."""
    if not fresh:
        return
    values = weight.data
    others = torch.ones(values.shape[0], dtype=torch.bool, device=values.device)
    others[list(fresh.values())] = False
    others[len(tokenizer) :] = False
    mean = values[others].float().mean(dim=0)
    for token, row in fresh.items():
        start = mean
        if beginning in ("desc_init", "desc_init_w_noise") and token in descriptions:
            start = _mean_of_words(values, tokenizer, descriptions[token], set(fresh.values()), mean)
        if beginning in ("noise_init", "desc_init_w_noise"):
            start = start + torch.randn_like(start) * start.shape[0] ** -0.5
        values[row] = start.to(values.dtype)


def _mean_of_words(
    values: Tensor, tokenizer: PreTrainedTokenizerBase, text: str, fresh: set[int], otherwise: Tensor
) -> Tensor:
    """Return the mean row of a description's tokens, new ones left out. Shape [width]."""
    ids: Sequence[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    used = [token for token in ids if token not in fresh]
    return values[used].float().mean(dim=0) if used else otherwise
