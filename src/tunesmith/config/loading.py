"""Settings of the way from files to batches: preparing, caching, loading and order."""

from dataclasses import dataclass
from typing import Literal

from tunesmith.config.constraints import NonNegativeInt, PathText, PositiveInt


@dataclass(frozen=True, kw_only=True)
class LoadingConfig:
    """How rows are prepared once and fed to the model many times."""

    padding_free: Literal["auto"] | bool = "auto"
    """Put the rows of a micro-batch one after the other instead of padding them to the same length.

    `auto` does so wherever the attention in use can keep rows apart. The results are the same; only the time and memory
    spent on padding go away. False gives right-padded batches."""

    preprocessing_num_workers: PositiveInt | None = None
    """Processes that render and tokenize rows. When not set, or 1, the run does so itself, in threads on all cores.

    Processes help where Python is the slow part, as with a chat template that is not one of ours. Each takes memory for
    a tokenizer of its own."""

    preprocessing_batch_size: PositiveInt = 1000
    """Rows that are tokenized together. Smaller values take less memory and are slower."""

    overwrite_cache: bool = False
    """Prepare the data again even if the same rows, tokenizer, template and settings were prepared before.

    The cache is keyed by content, so this is rarely needed."""

    dataset_cache_dir: PathText | None = None
    """Folder for prepared data; `~/.cache/tunesmith` when not set.

    Put it on a fast disk. Costs about 4 bytes per token."""

    dataloader_num_workers: NonNegativeInt = 0
    """Processes per device that make batches.

    0 makes them in the training process, which is enough for text. Raise it when the log shows time spent waiting for
    data. Costs memory and start-up time for each."""

    dataloader_pin_memory: bool = True
    """Keep batches in page-locked memory, which copies faster to a GPU. No effect without one."""

    dataloader_prefetch_factor: PositiveInt | None = None
    """Batches that each worker prepares ahead; 2 when not set. Needs `dataloader_num_workers` of 1 or more."""

    dataloader_persistent_workers: bool = False
    """Keep the workers alive between epochs. Saves their start-up time where epochs are short; keeps their memory."""

    dataloader_drop_last: bool = False
    """Leave out the rows that do not fill the last micro-batch of an epoch.

    They are counted as dropped. Not needed for correctness: short batches are weighted exactly."""

    train_sampling_strategy: Literal["random", "sequential", "group_by_length"] = "random"
    """Order of the rows: shuffled every epoch, as they are, or shuffled with rows of similar length together.

    `group_by_length` saves padding in padded batches and changes the order in which rows are seen."""

    group_by_length: bool = False
    """The older name for `train_sampling_strategy: group_by_length`."""

    disable_shuffling: bool = False
    """LLaMA-Factory's name for `train_sampling_strategy: sequential`."""
