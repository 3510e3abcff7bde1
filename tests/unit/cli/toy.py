"""A toy model on disk, for commands that load one."""

from pathlib import Path

from tests.tiny.runs import write_model, write_reward_model
from tunesmith.data.chat.catalog import find_entry


def save_toy_model(folder: Path) -> Path:
    """Save a model with a chat template."""
    return write_model(folder, chat_template=find_entry("chatml").source)


def save_toy_reward_model(folder: Path) -> Path:
    """Save a model with a score head and a chat template."""
    return write_reward_model(folder, chat_template=find_entry("chatml").source)
