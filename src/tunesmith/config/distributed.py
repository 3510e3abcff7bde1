"""Settings of runs on several devices."""

from dataclasses import dataclass
from typing import Literal

from tunesmith.config.constraints import PositiveInt


@dataclass(frozen=True, kw_only=True)
class DistributedConfig:
    """How the processes of one run talk to each other."""

    ddp_timeout: PositiveInt = 1800
    """Seconds that a process waits for the others before the run is stopped.

    Raise it when one process prepares a large data set while the others wait."""

    ddp_find_unused_parameters: bool | None = None
    """Look for parameters that took no part in a step.

    When not set: yes, except where whole weights are trained with gradient checkpointing. False saves a pass over the
    graph each step, and fails for models that skip layers."""

    ddp_backend: Literal["nccl", "gloo", "mpi", "xccl", "hccl"] | None = None
    """Library for communication; chosen from the device when not set (`nccl` on GPUs, `gloo` on CPUs)."""

    ddp_bucket_cap_mb: PositiveInt | None = None
    """Megabytes of gradients sent together; PyTorch's 25 when not set. Larger ones can help on fast networks."""

    ddp_broadcast_buffers: bool | None = None
    """Send buffers such as running averages from the first process to the others every step. When not set: yes."""
