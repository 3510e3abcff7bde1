"""The data of a run for commands that look at it without training: of the model, only the tokenizer is loaded."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from tunesmith.config import RunConfig
    from tunesmith.data import PreparedData
    from tunesmith.data.preparation import Preparation


@dataclass(frozen=True, slots=True)
class DataRun:
    """A configuration and its prepared data."""

    config: "RunConfig"
    tokenizer: "PreTrainedTokenizerBase"
    preparation: "Preparation"
    data: "PreparedData"


def load_data_run(words: Sequence[str], *, purpose: str | None = None, shows_bad_rows: bool = False) -> DataRun:
    """Read the settings of a command line and prepare the data that they name, in this one process.

    Args:
        words: Of the command line.
        purpose: What all rows are needed for; a run that streams is refused then.
        shows_bad_rows: Count rows for which a run would stop, whatever `bad_rows` says: who looks at the data wants to
            see all of them.

    Raises:
        TunesmithError: Settings, data, tokenizer or template cannot be used.
    """
    from tunesmith.config import load_config, parse_command_line
    from tunesmith.recipes import expand_recipe

    source, overrides = parse_command_line(expand_recipe(words))
    if shows_bad_rows:
        overrides = (*overrides, "bad_rows=skip")
    config = load_config(source, overrides, purpose="read")
    from tunesmith.data.chat import resolve_template
    from tunesmith.data.pipeline import prepare_data
    from tunesmith.data.preparation import Preparation
    from tunesmith.errors import ConfigError
    from tunesmith.inference.load import load_run_tokenizer
    from tunesmith.runtime.ranks import Ranks

    if not (config.data.dataset or config.data.eval_dataset):
        raise ConfigError("dataset is not set; name the data sets to look at.")
    if config.data.streaming and purpose is not None:
        raise ConfigError(
            f"`streaming: true` reads rows as they come, so there is nothing to {purpose} beforehand. Add "
            "streaming=false to read all of them."
        )
    tokenizer = load_run_tokenizer(config)
    template = None if config.objective.stage == "pt" else resolve_template(config.data, tokenizer)
    ranks = Ranks()
    data = prepare_data(config, tokenizer, template, ranks)
    return DataRun(config, tokenizer, Preparation(config, tokenizer, template, ranks), data)
