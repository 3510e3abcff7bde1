"""Settings of the way from files to batches: preparing, caching, loading and order."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tunesmith.config.constraints import NonNegativeFloat, NonNegativeInt, PathText, PositiveInt, Range

MOST_BY_HAND = 1024
"""Of processes that make batches, and of batches ahead of each: a slip of the finger must not bring down a machine."""

NumWorkers = Annotated[int, Range(0, MOST_BY_HAND)]
NumAhead = Annotated[int, Range(1, MOST_BY_HAND)]


@dataclass(frozen=True, kw_only=True)
class LoadingConfig:
    """How rows are prepared once and fed to the model many times."""

    padding_free: Literal["auto"] | bool = "auto"
    """Put the rows of a micro-batch one after the other instead of padding them to the same length.

    `auto` does so wherever the attention in use can keep rows apart. The results are the same; only the time and memory
    spent on padding go away. False gives right-padded batches."""

    prefix_sharing: Literal["auto"] | bool = "auto"
    """Compute the prompt of a pair once for both of its completions, with stages `rm` and `dpo`.

    The results are the same. `auto` does so where rows stand end to end without padding, the attention keeps the
    completions apart, and prompts are long enough for it to save work."""

    preprocessing_num_workers: PositiveInt | None = None
    """Processes that render and tokenize rows. 1 does so in the run itself, in threads on all cores.

    When not set, the first second is done in the run itself, and processes are started if that leaves cores idle, there
    are rows enough to pay for starting them, and memory for them: as with a chat template that is not one of ours. A
    script of your own gets processes only where a number is written."""

    preprocessing_batch_size: PositiveInt = 1000
    """Rows that are tokenized together. Smaller values take less memory and are slower."""

    overwrite_cache: bool = False
    """Prepare the data again even if the same rows, tokenizer, template and settings were prepared before.

    The cache is keyed by content, so this is rarely needed."""

    dataset_cache_dir: PathText | None = None
    """Folder for prepared data; `~/.cache/tunesmith` when not set.

    Put it on a fast disk, or in memory (`/dev/shm/tunesmith`): data that was prepared before is copied there, after a
    look at whether it fits. Costs about 4 bytes per token."""

    tokenized_path: PathText | None = None
    """Folder for the prepared data of this very run: filled if it is empty, used if it is not.

    For preparing on one machine and training on another, which then needs no raw files (`tunesmith data prepare`). A
    folder that was made with other settings, another tokenizer or other files is refused; `overwrite_cache` replaces
    it."""

    dataloader_num_workers: Literal["auto"] | NumWorkers = "auto"
    """Processes per device that make batches.

    `auto` measures: the first batches are made without any, which is enough for text; where the run has to wait for
    data, as many are used as keep up, within the processors, memory and open files of the machine. Watched during the
    run. A number is obeyed; 0 makes batches in the training process."""

    dataloader_prefetch_factor: Literal["auto"] | NumAhead | None = "auto"
    """Batches that each worker prepares ahead.

    `auto` begins with 2 and goes deeper where batches take uneven times to make. A number is obeyed."""

    dataloader_pin_memory: Literal["auto"] | bool = "auto"
    """Keep batches in page-locked memory, which copies faster to a GPU. `auto` does so where there is one."""

    dataloader_persistent_workers: Literal["auto"] | bool = "auto"
    """Keep the workers alive between epochs. Saves their start-up time; keeps their memory. `auto` keeps them."""

    dataloader_restarts: NonNegativeInt = 2
    """How often the loader is built again, with fewer workers and at the same batch, after a worker died or failed.

    After that the run saves a checkpoint and stops. 0 stops at the first time."""

    data_timeout_seconds: NonNegativeFloat = 300.0
    """Seconds without a batch after which the stacks of all processes and workers are printed and workers replaced.

    Raise it where making one batch may take longer. 0 waits for ever."""

    dataloader_drop_last: bool = False
    """Leave out the rows that do not fill the last micro-batch of an epoch.

    They are counted as dropped. Not needed for correctness: short batches are weighted exactly."""

    tokens_per_device_batch: PositiveInt | None = None
    """Most tokens of a micro-batch on each device, padding included, instead of a number of rows.

    Rows of similar length are put together until the budget is full, so that long rows cannot blow up memory and short
    ones keep the device busy. Then `per_device_train_batch_size` is not used. A row that is longer than the budget
    makes a micro-batch by itself; keep it at `cutoff_len` or more."""

    train_sampling_strategy: Literal["random", "sequential", "group_by_length"] = "random"
    """Order of the rows: shuffled every epoch, as they are, or shuffled with rows of similar length together.

    `group_by_length` saves padding in padded batches and changes the order in which rows are seen."""

    group_by_length: bool = False
    """The older name for `train_sampling_strategy: group_by_length`."""

    disable_shuffling: bool = False
    """LLaMA-Factory's name for `train_sampling_strategy: sequential`."""

    @property
    def asks_for_workers(self) -> tuple[str, ...]:
        """Settings with values that mean something only where there are worker processes."""
        asking = {
            "dataloader_prefetch_factor": self.dataloader_prefetch_factor,
            "dataloader_persistent_workers": self.dataloader_persistent_workers,
        }
        return tuple(key for key, value in asking.items() if value not in (None, False, "auto"))
