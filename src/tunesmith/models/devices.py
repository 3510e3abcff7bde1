"""Which device this process computes on."""

import torch

from tunesmith.runtime.ranks import Ranks, current_ranks


def resolve_device(*, use_cpu: bool = False, ranks: Ranks | None = None) -> torch.device:
    """Return the device of this process: its GPU, Apple's, or the processor.

    Args:
        use_cpu: Setting `use_cpu`.
        ranks: Place of this process in the run; read from the environment when not given.
    """
    if use_cpu:
        return torch.device("cpu")
    if torch.cuda.is_available():
        local_rank = (ranks or current_ranks()).local_rank
        return torch.device("cuda", local_rank % torch.cuda.device_count())
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")
