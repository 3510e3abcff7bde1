"""A toy model on disk, for commands that load one."""

from pathlib import Path

from tests.tiny.models import tiny_model
from tests.tiny.tokenizers import byte_level_tokenizer
from tunesmith.data.chat.catalog import find_entry


def save_toy_model(folder: Path) -> Path:
    """Save a model with a chat template."""
    tiny_model().save_pretrained(folder)
    byte_level_tokenizer(chat_template=find_entry("chatml").source).save_pretrained(folder)
    return folder
