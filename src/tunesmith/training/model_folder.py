"""What a folder of trained weights holds: the model or its adapter, and the tokenizer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peft import PeftModel
from peft.utils import ModulesToSaveWrapper
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tunesmith.models.quantization.qat import CompressionScheme
from tunesmith.models.rope import write_rope_scaling
from tunesmith.models.vocabulary import check_vocabulary


def save_model(
    model: PreTrainedModel | PeftModel,
    folder: str | Path,
    tokenizer: PreTrainedTokenizerBase | None,
    state_dict: Mapping[str, Any] | None = None,
    *,
    trained_for: CompressionScheme | None = None,
    changes_positions: bool = False,
) -> None:
    """Write a model, or the adapter on it, the tokenizer, and the scheme it was trained for, into a folder.

    Args:
        model: Base model, with or without adapter.
        folder: Where everything goes.
        tokenizer: Of the run.
        state_dict: Weights, where they had to be gathered.
        trained_for: How the weights will be compressed later.
        changes_positions: Whether the base model has other rotary positions than it is stored with.

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
    if isinstance(model, PeftModel) and changes_positions:
        write_rope_scaling(model.get_base_model().config, folder)
    if trained_for is not None:
        trained_for.write(folder)


def _trains_embeddings(model: PeftModel) -> bool:
    return isinstance(model.get_base_model().get_input_embeddings(), ModulesToSaveWrapper)
