"""Rules about rows that are read as they come."""

from collections.abc import Iterator

from tunesmith.config.rules.registry import Finding, Question, rule

_STAGES = ("pt", "sft", "rm", "dpo")


@rule()
def streaming_needs_a_length(question: Question) -> Iterator[Finding]:
    """Nobody counts the rows of a stream, and a schedule needs to know where it ends."""
    config = question.config
    if config.data.streaming and config.training.do_train and config.training.max_steps < 1:
        yield Finding(
            ("streaming", "max_steps"),
            "`streaming: true` does not know the number of rows, so the run has no length; set `max_steps`.",
        )


@rule()
def streaming_counts_no_rows(question: Question) -> Iterator[Finding]:
    """What goes by the number or the lengths of all rows cannot be had while they are read."""
    config = question.config
    if not config.data.streaming:
        return
    if config.data.val_size:
        yield Finding(
            ("val_size", "streaming"),
            f"{question.cite('val_size')} chooses among all rows, which `streaming: true` does not know; name other "
            "rows with `eval_dataset`.",
        )
    if config.data.max_samples is not None:
        yield Finding(
            ("max_samples", "streaming"),
            f"{question.cite('max_samples')} takes the first rows, which `streaming: true` shares out before they are "
            "counted; `max_steps` decides how much is read.",
        )
    if config.loading.tokenized_path is not None:
        yield Finding(
            ("tokenized_path", "streaming"),
            f"{question.cite('tokenized_path')} keeps prepared rows, and `streaming: true` prepares none; keep one of "
            "them.",
        )
    if config.loading.group_by_length or config.loading.train_sampling_strategy == "group_by_length":
        key = "group_by_length" if config.loading.group_by_length else "train_sampling_strategy"
        yield Finding(
            (key, "streaming"),
            f"{question.cite(key)} sorts by the lengths of all rows, which `streaming: true` does not know; "
            "remove it (`packing: true` avoids padding too).",
        )


@rule()
def streaming_serves_some_stages(question: Question) -> Iterator[Finding]:
    """Stages that compare a row with others of the data set need all of them."""
    config = question.config
    if config.data.streaming and config.objective.stage not in _STAGES:
        yield Finding(
            ("streaming", "stage"),
            f"`streaming: true` serves the stages {', '.join(_STAGES)}; {question.cite('stage')} needs all rows "
            "at hand.",
        )


@rule("train")
def batches_of_a_stream_have_a_number_of_rows(question: Question) -> Iterator[Finding]:
    """Lengths of rows that are read as they come are not known when a run starts."""
    config = question.config
    if not config.data.streaming:
        return
    if config.training.per_device_train_batch_size == "auto":
        yield Finding(
            ("per_device_train_batch_size", "streaming"),
            "`per_device_train_batch_size: auto` tries the longest rows, which nobody knows with `streaming: true`; "
            "set a number.",
        )
    if config.loading.tokens_per_device_batch is not None:
        yield Finding(
            ("tokens_per_device_batch", "streaming"),
            f"{question.cite('tokens_per_device_batch')} groups rows by length, which takes all of them; with "
            "`streaming: true` set `packing: true` instead, which fills rows to `cutoff_len`.",
        )
