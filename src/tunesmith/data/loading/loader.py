"""A PyTorch loader over rows or packs, with the settings of the `loading` group."""

from typing import Any

from torch.utils.data import DataLoader, Dataset

from tunesmith.config.loading import LoadingConfig
from tunesmith.data.collators import Collator
from tunesmith.data.loading.samplers import EpochSampler


def build_loader(
    dataset: Dataset[Any],
    collator: Collator,
    loading: LoadingConfig,
    *,
    batch_size: int,
    sampler: EpochSampler | None = None,
    drop_last: bool | None = None,
) -> DataLoader[Any]:
    """Build a loader of micro-batches.

    Args:
        dataset: `ExampleDataset` or `PackedDataset`.
        collator: Makes a batch of the rows of one micro-batch.
        loading: Worker processes, prefetching and pinned memory.
        batch_size: Rows or packs in a micro-batch.
        sampler: Order of the rows; as they stand when not given.
        drop_last: Leave out an incomplete last micro-batch; `dataloader_drop_last` when not given.
    """
    workers = loading.dataloader_num_workers
    return DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=sampler,
        collate_fn=collator,
        num_workers=workers,
        pin_memory=loading.dataloader_pin_memory,
        drop_last=loading.dataloader_drop_last if drop_last is None else drop_last,
        persistent_workers=workers > 0 and loading.dataloader_persistent_workers,
        prefetch_factor=(loading.dataloader_prefetch_factor or 2) if workers else None,
    )
