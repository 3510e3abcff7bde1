"""Settings of the data: which rows, which template, and what of them is learnt."""

from dataclasses import dataclass, field

from tunesmith.config.constraints import (
    PathText,
    PositiveInt,
    ShareOrCount,
    TextMapping,
    TreeMapping,
)

TEMPLATE_NAMES = (
    "alpaca",
    "chatml",
    "deepseek3",
    "default",
    "gemma",
    "llama2",
    "llama3",
    "mistral",
    "phi",
    "qwen",
    "qwen2",
    "qwen2_5",
    "qwen3",
    "smollm2",
    "vicuna",
)
"""What `template` accepts besides `auto`. Settings know the names alone; the templates are in `data.chat`."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which rows are trained on and how they become tokens and labels."""

    dataset: tuple[str, ...] = ()
    """Names of the data sets to train on, from `dataset_info.json`. Several are joined one after the other.

    Each is named once; a larger `num_samples` in its entry shows its rows more often."""

    eval_dataset: tuple[str, ...] = ()
    """Names of the data sets to evaluate on. Use `val_size` instead to hold back a part of `dataset`."""

    dataset_dir: PathText = "data"
    """Folder that holds `dataset_info.json` and the files named there."""

    dataset_info: TreeMapping | None = None
    """The catalogue itself, written in the configuration instead of a `dataset_info.json`.

    Each entry is `name: {file_name: ..., formatting: ..., columns: {...}, tags: {...}}`. File names are looked up in
    `dataset_dir`."""

    template: str | None = "auto"
    """Chat template that turns conversations into text.

    `auto` uses the tokenizer's own, which is what the model was trained with. Name one of ours (`chatml`, `llama3`,
    `qwen` ...) for a base model that has none."""

    default_system: str | None = None
    """System message for conversations that have none; the template's own when not set."""

    row_variables: TextMapping = field(default_factory=dict)
    """Words to fill into the rows: `{name: Ada}` replaces `{{name}}` in every row.

    Rows that use a name which is not given are an error. Without this setting double braces are ordinary text."""

    cutoff_len: PositiveInt = 2048
    """Largest number of tokens of one row, and the length of a packed row.

    Longer conversations are cut, never inside a role header, and the number of rows that lost something is reported.
    Memory for activations grows with it."""

    max_samples: PositiveInt | None = None
    """Use only the first rows of each data set.

    For trying things out. Rows are capped first and packed afterwards."""

    val_size: ShareOrCount = 0.0
    """Part of `dataset` that is held back for evaluation: a share below 1, or a whole number of rows from 1 on.
    1 is one row; 1.0 is refused, since a share of all leaves none to train on.

    Chosen with `seed`. Cannot be combined with `eval_dataset`."""

    streaming: bool = False
    """Read rows as they come instead of preparing them all first. Known but not supported yet: leave it out."""

    packing: bool | None = None
    """Put several rows into one of `cutoff_len` tokens. When not set: yes for `pt`, no for the other stages.

    Rows stay isolated from each other for `sft`. Saves padding where rows are short; the number of rows per optimizer
    step grows, so the learning rate may need a look."""

    neat_packing: bool = False
    """LLaMA-Factory's name for packing with isolated rows; the same as `packing: true` here, which always isolates."""

    train_on_prompt: bool = False
    """Learn the prompts as well as the answers.

    For `sft` on data where the questions are as valuable as the answers. Makes every step count more tokens."""

    mask_history: bool = False
    """Learn only the last answer of each conversation.

    When earlier answers are of lower quality. Of a row that is too long, the first turns are then dropped."""

    ignore_pad_token_for_loss: bool = True
    """Leave padding out of the loss.

    False gives padding its own id as label, in training and evaluation, as in LLaMA-Factory: the model also learns to
    pad after its answers. Needs `padding_free: false`, since other batches have no padding."""
