"""Rules about rows: which are used, how they are learnt, packed and ordered."""

from collections.abc import Iterator

from tunesmith.config.rules.registry import Finding, Question, rule
from tunesmith.config.suggestions import render_suggestion
from tunesmith.config.templates import TEMPLATE_NAMES, TOOL_FORMAT_NAMES

_SMALLEST_CUTOFF = 8


@rule()
def cutoff_leaves_room(question: Question) -> Iterator[Finding]:
    """A role header and one token of answer need several tokens."""
    cutoff = question.config.data.cutoff_len
    if cutoff < _SMALLEST_CUTOFF:
        yield Finding(
            ("cutoff_len",),
            f"`cutoff_len` is {cutoff}; allowed is {_SMALLEST_CUTOFF} or more, since a role header and one token of an "
            "answer have to fit.",
        )


@rule()
def template_is_known(question: Question) -> Iterator[Finding]:
    """Names of templates are checked before a tokenizer is loaded; training on plain text uses none."""
    name = question.config.data.template
    known = ("auto", *TEMPLATE_NAMES)
    if not name or name in known or (question.config.objective.stage == "pt" and question.purpose == "train"):
        return
    hint = render_suggestion(name, known)
    yield Finding(
        ("template",),
        f"`template` is {name}; allowed is auto or one of the {len(TEMPLATE_NAMES)} names that "
        f"`tunesmith template list` shows.{hint}",
    )


@rule()
def tool_format_suits_the_template(question: Question) -> Iterator[Finding]:
    """A tool format goes into a template of ours; the tokenizer's own prints tools its own way."""
    data = question.config.data
    if data.tool_format is None:
        return
    if data.tool_format not in TOOL_FORMAT_NAMES:
        hint = render_suggestion(data.tool_format, TOOL_FORMAT_NAMES)
        yield Finding(
            ("tool_format",),
            f"`tool_format` is {data.tool_format}; allowed is one of {', '.join(TOOL_FORMAT_NAMES)}.{hint}",
        )
    if question.purpose == "train" and data.template in (None, "auto"):
        yield Finding(
            ("tool_format", "template"),
            f"{question.cite('tool_format')} goes into a `template` that is named; name one, such as chatml, or remove "
            "it.",
        )


@rule()
def history_mask_or_prompts(question: Question) -> Iterator[Finding]:
    """Learning everything contradicts learning only the last answer."""
    data = question.config.data
    if data.mask_history and data.train_on_prompt:
        yield Finding(
            ("mask_history", "train_on_prompt"),
            "`mask_history: true` learns only the last answer and `train_on_prompt: true` learns everything; "
            "keep one of them.",
        )


@rule()
def conversations_need_sft(question: Question) -> Iterator[Finding]:
    """Plain text has no prompts, no history and no isolated rows."""
    if question.config.objective.stage != "pt":
        return
    for key in (
        "mask_history",
        "train_on_prompt",
        "default_system",
        "tool_format",
        "preserve_thinking",
        "allow_special_tokens",
    ):
        if question.config.value(key):
            yield Finding(
                (key, "stage"),
                f"{question.cite(key)} is about conversations and has no effect with `stage: pt`; remove it.",
            )


@rule()
def padding_is_there_to_be_learnt(question: Question) -> Iterator[Finding]:
    """Whoever learns padding has to make batches that have some."""
    config = question.config
    if not config.data.ignore_pad_token_for_loss and config.loading.padding_free is not False:
        yield Finding(
            ("ignore_pad_token_for_loss", "padding_free"),
            f"`ignore_pad_token_for_loss: false` learns padding, and with {config.cite('padding_free')} batches may "
            "have none; set `padding_free: false` too, or remove it.",
        )


@rule()
def packing_is_said_once(question: Question) -> Iterator[Finding]:
    """Isolated packing is packing."""
    data = question.config.data
    if data.neat_packing and data.packing is False:
        yield Finding(
            ("neat_packing", "packing"),
            "`neat_packing: true` packs and `packing: false` does not; keep one of them.",
        )


@rule()
def evaluation_rows_come_from_one_place(question: Question) -> Iterator[Finding]:
    """Rows for evaluation are held back or named, not both."""
    data = question.config.data
    if data.val_size and data.eval_dataset:
        yield Finding(
            ("val_size", "eval_dataset"),
            f"{question.cite('val_size')} holds back rows and {question.cite('eval_dataset')} names others; "
            "keep one of them.",
        )
    if data.val_size and not data.dataset:
        yield Finding(("val_size",), "`val_size` holds back a part of `dataset`, which is not set.")
    if data.val_size > 1 and data.val_size != int(data.val_size):
        yield Finding(
            ("val_size",),
            f"`val_size` is {data.val_size:g}; allowed is a share below 1 or a whole number of rows.",
        )


@rule()
def order_is_said_once(question: Question) -> Iterator[Finding]:
    """Three settings name the order of rows and must not disagree."""
    loading = question.config.loading
    chosen = {
        "disable_shuffling": "sequential" if loading.disable_shuffling else None,
        "group_by_length": "group_by_length" if loading.group_by_length else None,
        "train_sampling_strategy": (
            loading.train_sampling_strategy if question.is_set("train_sampling_strategy") else None
        ),
    }
    named = {key: order for key, order in chosen.items() if order}
    if len(set(named.values())) > 1:
        orders = " and ".join(f"{question.cite(key)} ({order})" for key, order in named.items())
        yield Finding(tuple(named), f"{orders} ask for different orders of the rows; keep one of them.")


@rule()
def prefetching_needs_workers(question: Question) -> Iterator[Finding]:
    """Without worker processes nothing is prepared ahead."""
    loading = question.config.loading
    if loading.dataloader_num_workers != 0:
        return
    for key in loading.asks_for_workers:
        yield Finding(
            (key, "dataloader_num_workers"),
            f"{question.cite(key)} needs worker processes; set `dataloader_num_workers` to auto or 1 or more, or "
            "remove it.",
        )


@rule()
def sampling_suits_the_temperature(question: Question) -> Iterator[Finding]:
    """An answer needs room, and beams do not draw."""
    generation = question.config.generation
    if generation.top_p == 0 and generation.do_sample:
        yield Finding(("top_p",), "`top_p` is 0; allowed is a number from above 0 to 1, or set `do_sample: false`.")
