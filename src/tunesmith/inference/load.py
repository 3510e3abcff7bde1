"""A model ready to answer: model, tokenizer and chat template of a configuration, in one piece."""

import sys
from dataclasses import dataclass, replace

from transformers import PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from tunesmith.config import GenerationConfig, RunConfig
from tunesmith.data.chat import ChatTemplate, resolve_template
from tunesmith.inference.local import LocalGenerator
from tunesmith.models import load_model, load_tokenizer
from tunesmith.models.locations import resolve_adapter


@dataclass(frozen=True, slots=True)
class LoadedGenerator:
    """What is needed to ask a model something."""

    generator: LocalGenerator
    tokenizer: PreTrainedTokenizerBase
    template: ChatTemplate
    options: GenerationConfig


def load_generator(config: RunConfig) -> LoadedGenerator:
    """Load the model of a configuration, with its adapters, ready to generate."""
    hide_progress_without_terminal()
    tokenizer = load_run_tokenizer(config)
    template = resolve_template(config.data, tokenizer)
    loaded = load_model(config, tokenizer, is_trainable=False)
    generator = LocalGenerator(loaded.model, tokenizer, end_markers=template.end_markers)
    return LoadedGenerator(generator, tokenizer, template, config.generation)


def hide_progress_without_terminal() -> None:
    """Keep transformers from drawing progress bars where nobody watches: in pipes and log files they are noise."""
    if not sys.stderr.isatty():
        transformers_logging.disable_progress_bar()


def load_run_tokenizer(config: RunConfig) -> PreTrainedTokenizerBase:
    """Load the tokenizer that belongs to the last adapter, or that of the model.

    Training saves the tokenizer with its chat template beside the adapter. That template is what the adapter was
    trained on, which the base model's may not be.
    """
    for name in reversed(config.adapter.adapter_name_or_path):
        folder = resolve_adapter(config.model, name)
        if (folder / "tokenizer_config.json").is_file():
            return load_tokenizer(replace(config.model, model_name_or_path=str(folder)))
    return load_tokenizer(config.model)
