"""The data of a run for commands that look at it without training: of the model, only the tokenizer is loaded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from tunesmith.config import RunConfig
    from tunesmith.data import PreparedData
    from tunesmith.data.account import Tally
    from tunesmith.data.preparation import Preparation
    from tunesmith.data.sources import DatasetSpec


@dataclass(frozen=True, slots=True)
class DataRun:
    """A configuration and its prepared data, in which rows for which the run would stop are counted as dropped."""

    config: "RunConfig"
    """As it was written, but that no row stops anything."""

    asked: "RunConfig"
    """As it was written."""

    tokenizer: "PreTrainedTokenizerBase"
    preparation: "Preparation"
    data: "PreparedData"

    def held_to_settings(self) -> "Iterator[tuple[DatasetSpec, Tally]]":
        """Yield each data set with what became of its rows, to be judged by the settings as they were written."""
        policies = self.asked.data
        for item in self.data.sets:
            spec = replace(item.spec, bad_rows=policies.bad_rows, turn_order_policy=policies.turn_order_policy)
            yield spec, item.tally


def load_data_run(words: Sequence[str], *, purpose: str | None = None, needs_columns: bool = False) -> DataRun:
    """Read the settings of a command line and prepare the data that they name, in this one process.

    All rows are gone through, also where the run would stop for some (`bad_rows`, `turn_order_policy`): who looks at
    the data wants to hear of all of them at once.

    Args:
        words: Of the command line.
        purpose: What all rows are needed for; a run that streams is refused then.
        needs_columns: Refuse data sets without a column that somebody wrote down, as the run does.

    Raises:
        TunesmithError: Settings, data, tokenizer or template cannot be used.
    """
    from tunesmith.config import load_config, parse_command_line
    from tunesmith.recipes import expand_recipe

    source, overrides = parse_command_line(expand_recipe(words))
    asked = load_config(source, overrides, purpose="read")
    from tunesmith.data.chat import resolve_template
    from tunesmith.data.pipeline import prepare_data
    from tunesmith.data.preparation import Preparation
    from tunesmith.data.requested import resolve_requested
    from tunesmith.errors import ConfigError
    from tunesmith.inference.load import load_run_tokenizer
    from tunesmith.runtime.ranks import Ranks

    if not (asked.data.dataset or asked.data.eval_dataset):
        raise ConfigError("dataset is not set; name the data sets to look at.")
    if asked.data.streaming and purpose is not None:
        raise ConfigError(
            f"`streaming: true` reads rows as they come, so there is nothing to {purpose} beforehand. Add "
            "streaming=false to read all of them."
        )
    if needs_columns and asked.loading.tokenized_path is None:  # what lies there may have been made where the rows are
        resolve_requested(asked)
    config = _without_stops(asked)
    tokenizer = load_run_tokenizer(config)
    template = None if config.objective.stage == "pt" else resolve_template(config.data, tokenizer)
    ranks = Ranks()
    data = prepare_data(config, tokenizer, template, ranks)
    return DataRun(config, asked, tokenizer, Preparation(config, tokenizer, template, ranks), data)


def _without_stops(config: "RunConfig") -> "RunConfig":
    """Return settings that give the same rows and stop for none."""
    order = "skip" if config.data.turn_order_policy == "error" else config.data.turn_order_policy
    return replace(config, data=replace(config.data, bad_rows="skip", turn_order_policy=order))
