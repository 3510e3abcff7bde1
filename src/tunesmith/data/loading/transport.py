"""Batches on their way from a worker process: small ones by value, large ones through shared memory.

PyTorch hands over each tensor as a file descriptor of its own, and receiving one takes longer than copying the few ten
kilobytes of a batch of text. Sent by value, such a batch also needs no descriptor and no room in `/dev/shm` while it
waits. Images are copied once more that way, so they go as PyTorch has it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

VALUE_BYTES = 1 << 20
"""Most bytes of a batch that is sent by value."""

_SENDABLE = frozenset({torch.int64, torch.int32, torch.uint8, torch.bool, torch.float32, torch.float64})


class _SentTensor(NamedTuple):
    values: NDArray[Any]


@dataclass(frozen=True, slots=True)
class SentBatch:
    """A batch by value, as it is between two processes."""

    content: dict[str, Any]

    def unpack(self) -> dict[str, Any]:
        """Return the batch."""
        return _converted(self.content, _SentTensor, lambda sent: torch.from_numpy(sent.values))

    def pin_memory(self) -> dict[str, Any]:
        """Return the batch in page-locked memory; PyTorch's thread that pins calls this."""
        return _converted(self.content, _SentTensor, lambda sent: torch.from_numpy(sent.values).pin_memory())


def pack_batch(batch: Any) -> Any:
    """Return a batch as it should be sent to another process; what is no dictionary of small tensors stays as it is."""
    if not isinstance(batch, dict):
        return batch
    tensors = _find_tensors(batch)
    if not all(map(_is_sendable, tensors)) or sum(tensor.nbytes for tensor in tensors) > VALUE_BYTES:
        return batch
    return SentBatch(_converted(batch, Tensor, lambda tensor: _SentTensor(tensor.numpy())))


def unpack_batch(sent: Any) -> Any:
    """Return the batch that was sent."""
    return sent.unpack() if isinstance(sent, SentBatch) else sent


def _find_tensors(batch: dict[str, Any]) -> list[Tensor]:
    found: list[Tensor] = []
    for value in batch.values():
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, dict):
            found.extend(_find_tensors(value))
    return found


def _is_sendable(tensor: Tensor) -> bool:
    return tensor.dtype in _SENDABLE and tensor.device.type == "cpu" and not tensor.requires_grad


def _converted(
    batch: dict[str, Any], kind: type, convert: Callable[[Any], Any], known: dict[int, Any] | None = None
) -> dict[str, Any]:
    """Return a batch with all of a kind converted; what is in it twice, such as `cu_seq_lens`, stays one thing."""
    known = {} if known is None else known
    converted: dict[str, Any] = {}
    for key, value in batch.items():
        if isinstance(value, kind):
            if id(value) not in known:
                known[id(value)] = convert(value)
            converted[key] = known[id(value)]
        elif isinstance(value, dict):
            converted[key] = _converted(value, kind, convert, known)
        else:
            converted[key] = value
    return converted
