"""What a folder of trained weights holds: the model or its adapter, and the tokenizer."""

import logging
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from peft import PeftModel
from peft.utils import ModulesToSaveWrapper
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tunesmith.models.adapters.record import RECORD_FILE
from tunesmith.models.quantization.qat import QAT_FILE, CompressionScheme
from tunesmith.models.rope import ROPE_FILE, write_rope_scaling
from tunesmith.models.vocabulary import check_vocabulary
from tunesmith.runtime.files import make_readable

logger = logging.getLogger(__name__)
_MODEL_FILES = re.compile(
    r"(model|pytorch_model)(-\d+-of-\d+)?\.(safetensors|bin)|(model\.safetensors|pytorch_model\.bin)\.index\.json"
    r"|adapter_model\.(safetensors|bin)|(adapter_|generation_)?config\.json|chat_template\.jinja"
    rf"|{re.escape(RECORD_FILE)}|{re.escape(ROPE_FILE)}|{re.escape(QAT_FILE)}"
)
"""What decides which model or adapter a folder is taken for, and how it is loaded."""


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
    make_readable(Path(folder))


def remove_other_weights(folder: str | Path, written: Collection[str]) -> None:
    """Remove what an older run left of its model or adapter and this one did not write again.

    Beside a whole model, an older adapter would be loaded along with it; beside an adapter, an older model would be
    taken for what the folder holds; and of an older model in more parts, some would stay.

    Args:
        folder: Where a run has just put its results; nothing that a run reads may be in it.
        written: Names of these.
    """
    for path in Path(folder).iterdir():
        if path.name not in written and _MODEL_FILES.fullmatch(path.name) and path.is_file():
            logger.info("Removed %s, which an older run left there.", path)
            path.unlink()


def _trains_embeddings(model: PeftModel) -> bool:
    return isinstance(model.get_base_model().get_input_embeddings(), ModulesToSaveWrapper)
