"""Settings of the data: which rows, which template, and what of them is learnt."""

from dataclasses import dataclass, field
from typing import Literal

from tunesmith.config.constraints import (
    DataSetNames,
    PathText,
    PositiveFloat,
    PositiveInt,
    ShareOrCount,
    TextMapping,
    TreeMapping,
)


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which rows are trained on and how they become tokens and labels."""

    dataset: DataSetNames = ()
    """Data sets to train on. Several are joined as `mix_strategy` says.

    A name from `dataset_info.json`, a file, folder or pattern (`parts/*.jsonl.gz`), an address in an object store
    (`s3://bucket/rows`), a repository on a hub (`hub:owner/name`), or in a file a description such as
    `{file_name: rows.jsonl, formatting: sharegpt}`. Each is named once; a larger `num_samples` in its entry shows its
    rows more often."""

    eval_dataset: DataSetNames = ()
    """Data sets to evaluate on, named like those of `dataset`. Use `val_size` instead to hold back a part of `dataset`.
    """

    dataset_dir: PathText = "data"
    """Folder that holds `dataset_info.json` and the files named there.

    `ONLINE` takes every name as a repository on a hub, and `REMOTE:owner/name` takes the catalogue from a repository of
    Hugging Face."""

    dataset_info: TreeMapping | None = None
    """The catalogue itself, written in the configuration instead of a `dataset_info.json`.

    Each entry is `name: {file_name: ..., formatting: ..., columns: {...}, tags: {...}}`. File names are looked up in
    `dataset_dir`."""

    template: str | None = "auto"
    """Chat template that turns conversations into text.

    `auto` uses the tokenizer's own, which is what the model was trained with. For a base model that has none name a
    family (`chatml`, `llama3`, `qwen3` ...); all names of LLaMA-Factory are known (`tunesmith template list`)."""

    default_system: str | None = None
    """System message for conversations that have none; the template's own when not set."""

    tool_format: str | None = None
    """How tools and calls are written, where it is not the way of the named `template`: `qwen`, `llama3`, `glm4` ...

    For a base model that learns tools. Needs a named `template`; the tokenizer's own has a way of its own."""

    enable_thinking: bool | None = True
    """Whether answers hold reasoning, for templates that know it.

    True follows the template: reasoning is learnt, and an answer without any learns the empty block where the family
    prints one. False takes reasoning out of the answers and puts the empty block into the prompt. `null` takes each
    answer as it is: those without reasoning get the empty block in their prompt."""

    preserve_thinking: bool = False
    """Keep the reasoning of earlier answers, which most families drop as soon as a new question is asked.

    Conversations then stay one row. The saved template does the same when served."""

    allow_special_tokens: bool = False
    """Read special-token text in questions and tool results (`<|im_end|>`) as the token.

    Off, such a text stays text, so that a row cannot speak with the voice of another role."""

    row_variables: TextMapping = field(default_factory=dict)
    """Words to fill into the rows: `{name: Ada}` replaces `{{name}}` in every row.

    Names that are not given stay as they are, since double braces are ordinary text in code."""

    cutoff_len: PositiveInt = 2048
    """Largest number of tokens of one row, and the length of a packed row.

    Longer conversations are cut, never inside a role header, and the number of rows that lost something is reported.
    Memory for activations grows with it."""

    stringify_values: bool = False
    """Take numbers, true and false, lists and objects as their JSON text where a row should have text.

    Without it such a row is an error, see `bad_rows`. Nothing (null) never becomes text."""

    bad_rows: Literal["error", "skip"] = "error"
    """What becomes of a row that is not what its data set says: a line of its file is no row (not JSON, not UTF-8), a
    mapped column is missing or of the wrong type, a speaker is unknown, a tool call cannot be read.

    `error` stops after the first three, with file, row, field, what is expected and what is there. `skip` leaves such
    rows out and counts them in the report."""

    turn_order_policy: Literal["error", "merge", "skip"] = "merge"
    """What becomes of a conversation whose turns are in an order that templates cannot print.

    `merge` repairs what is never learnt (two questions in a row become one, a question at the end without an answer is
    left out) and leaves out the other rows. `skip` leaves out all such rows, `error` stops. Each is counted in the
    report."""

    mix_strategy: Literal["concat", "interleave_under", "interleave_over", "interleave_once"] = "concat"
    """How several data sets become one.

    `concat` takes all rows of all. The others draw from the data sets in turn, or with `interleave_probs`:
    `interleave_under` stops when the first one is used up, `interleave_over` goes on until all are and repeats the
    others, `interleave_once` goes on with those that are left and repeats none. With `seed`."""

    interleave_probs: tuple[PositiveFloat, ...] = ()
    """How likely the next row comes from each data set, in the order of `dataset`; they add up to 1.

    Needs a `mix_strategy` that interleaves. In turn when not set."""

    max_samples: PositiveInt | tuple[PositiveInt, ...] | None = None
    """Use only the first rows of each data set: one number for all, or one for each of `dataset` (and `eval_dataset`).

    For trying things out. Rows are capped first and mixed and packed afterwards."""

    val_size: ShareOrCount = 0.0
    """Part of `dataset` that is held back for evaluation: a share below 1, or a whole number of rows from 1 on.
    1 is one row; 1.0 is refused, since a share of all leaves none to train on.

    Chosen with `seed`. Cannot be combined with `eval_dataset`."""

    streaming: bool = False
    """Read, encode and pack rows on the way to the model instead of preparing them all first.

    For data that is too much to prepare, or to wait for: the first step comes within seconds whatever the size. Needs
    `max_steps`, until which the rows are read over and over. With `num_train_epochs` written too, the run ends after so
    many passes if they come first. Rows are packed with their neighbours alone, which fills packed rows a bit less."""

    buffer_size: PositiveInt = 16384
    """Rows that are shuffled together with `streaming`, in each process of the run.

    More mixes better, takes memory for so many raw rows, and makes going on from a checkpoint read so many again."""

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

    def max_samples_of(self, number: int) -> int | None:
        """Return how many rows of a data set are used at most.

        Args:
            number: Place of the data set in `dataset`, or in `eval_dataset` counted on from there.
        """
        if not isinstance(self.max_samples, tuple):
            return self.max_samples
        return self.max_samples[number] if number < len(self.max_samples) else None
