"""What a folder of trained weights holds: the model or its adapter, and the tokenizer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peft import PeftModel
from peft.utils import ModulesToSaveWrapper
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tunesmith.models.vocabulary import check_vocabulary


def save_model(
    model: PreTrainedModel | PeftModel,
    folder: str | Path,
    tokenizer: PreTrainedTokenizerBase | None,
    state_dict: Mapping[str, Any] | None = None,
) -> None:
    """Write a model, or the adapter on it, and the tokenizer into a folder.

    Raises:
        ModelError: Configuration, embeddings and tokenizer do not fit together, so it could not be loaded again.
    """
    if tokenizer is not None:
        check_vocabulary(model, tokenizer)
    options: dict[str, Any] = {"state_dict": state_dict}
    if isinstance(model, PeftModel) and _trains_embeddings(model):
        # Otherwise peft sees a grown vocabulary and saves the frozen copy beside the trained one.
        options["save_embedding_layers"] = False
    model.save_pretrained(folder, **options)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)


def _trains_embeddings(model: PeftModel) -> bool:
    return isinstance(model.get_base_model().get_input_embeddings(), ModulesToSaveWrapper)
