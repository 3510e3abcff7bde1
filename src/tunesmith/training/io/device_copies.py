"""What happens while a CUDA device computes: batches are copied to it, and it is known when it has nothing left to do.

Copies go on a stream of their own, from page-locked memory.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tunesmith.data.batches import BOOKKEEPING_KEYS


class DeviceCopies:
    """Batches on their way to a CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._started: dict[int, tuple[Any, dict[str, Tensor], torch.cuda.Event]] = {}

    def start(self, batch: Mapping[str, Any]) -> None:
        """Begin to copy a batch; it must not be changed until it is taken."""
        with torch.cuda.stream(self._stream):
            copied = {
                key: value.to(self._device, non_blocking=True)
                for key, value in batch.items()
                if key not in BOOKKEEPING_KEYS and isinstance(value, Tensor)
            }
            # The batch itself is kept until its copy is taken: its memory must not be used for another meanwhile.
            self._started[id(batch)] = (batch, copied, self._stream.record_event())

    def take(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the copy of a batch for the current stream, which waits for it; empty if none was begun."""
        found = self._started.pop(id(batch), None)
        if found is None:
            return {}
        _, copied, event = found
        current = torch.cuda.current_stream(self._device)
        current.wait_event(event)
        for value in copied.values():
            value.record_stream(current)
        return copied

    def clear(self) -> None:
        """Forget copies that nobody takes, such as those of an epoch that was left."""
        self._started.clear()


class DeviceWork:
    """All that a CUDA device was given to do until now."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.current_stream(device)
        self._end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._end.record(self._stream)

    def is_done(self) -> bool:
        """Return whether it is done."""
        done: bool = self._end.query()  # type: ignore[no-untyped-call]
        return done

    def idle_seconds(self) -> float:
        """Return for how long it has been done, with nothing new to do; 0 while it is not."""
        if not self.is_done():
            return 0.0
        now = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        now.record(self._stream)
        now.synchronize()  # there is nothing before it to wait for
        idle: float = self._end.elapsed_time(now) / 1000
        return idle
