"""The two ends of a model that have a row for each token: embedding and output head."""

import logging
from dataclasses import replace

from transformers import PreTrainedModel

from tunesmith.config import AdapterConfig

logger = logging.getLogger(__name__)


def find_end_names(model: PreTrainedModel) -> tuple[str, ...]:
    """Return the last parts of the names of embedding and head, such as `embed_tokens` and `lm_head`."""
    return tuple(name.rpartition(".")[2] for name in _full_names(model))


def train_new_rows(config: AdapterConfig, model: PreTrainedModel) -> AdapterConfig:
    """Return the settings of an adapter that trains and saves the rows of new tokens, beside what it was to train.

    Ends that share their weights are trained as one beside LoRA; peft can do that with no other method, so that beside
    those each end is trained for itself. Ends that get an adapter of their own are left to it.

    Args:
        config: Of the run.
        model: With rows for the new tokens, without adapters.
    """
    if config.finetuning_type in ("full", "freeze"):
        return config
    names = _full_names(model)
    if model.config.get_text_config().tie_word_embeddings and config.finetuning_type == "lora":
        names = names[:1]
    named = {*config.additional_target, *config.lora_target}
    missing = tuple(name for name in names if named.isdisjoint({name, name.rpartition(".")[2]}))
    if missing:
        logger.info("%s: trained whole and saved with the adapter, as the vocabulary has grown", ", ".join(missing))
    return replace(config, additional_target=(*config.additional_target, *missing))


def _full_names(model: PreTrainedModel) -> tuple[str, ...]:
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    named = {id(module): name for name, module in model.named_modules()}
    return tuple(named[id(end)] for end in ends if end is not None)
