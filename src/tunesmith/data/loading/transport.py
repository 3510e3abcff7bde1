"""Batches on their way from a worker process: small ones through slots of memory that both share from the start.

PyTorch hands over each tensor as a file descriptor of its own, for which the receiver has to talk to the worker, and
waits until that finds the time. A batch of text is copied in a fraction of it. Through a slot it also takes no
descriptor while it waits, and what goes through the pipe is so short that it is written as a whole or not at all: a
worker that is ended in the middle of a long message would leave the receiver waiting for the rest of it for ever.
Images, of which each copy counts, go as PyTorch has it.
"""

import itertools
import logging
import mmap
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import torch
from numpy.typing import NDArray
from torch import Tensor

logger = logging.getLogger(__name__)

SLOT_BYTES = 1 << 20
"""Most bytes of a batch that goes through a slot. Room that is not used takes no memory."""

_SENDABLE = frozenset({torch.int64, torch.int32, torch.uint8, torch.bool, torch.float32, torch.float64})


class _SentTensor(NamedTuple):
    values: NDArray[Any]


@dataclass(frozen=True, slots=True)
class SentBatch:
    """Where a batch lies, as it is told from one process to the other."""

    slots: int
    start: int
    size: int

    def read(self) -> tuple[Any, Any]:
        """Return the batch and its note. The slot is used again once the next batch is asked for."""
        return self._unpack(torch.from_numpy)

    def pin_memory(self) -> tuple[Any, Any]:
        """Return them with the batch in page-locked memory; PyTorch's thread that pins calls this."""
        return self._unpack(lambda values: torch.from_numpy(values).pin_memory())

    def _unpack(self, convert: Callable[[NDArray[Any]], Tensor]) -> tuple[Any, Any]:
        content, note = pickle.loads(_SLOTS[self.slots].view(self.start, self.size))  # noqa: S301 - from our worker
        return _converted(content, _SentTensor, lambda sent: convert(sent.values)), note


class BatchSlots:
    """Memory in which the workers of a loader lay batches.

    PyTorch gives a worker no more tasks than `prefetch_factor` before their batches are asked for, and the next one
    just before a batch is handed over. So with one slot more, none is written to while it is to be read.

    Args:
        num_workers: Of the loader.
        prefetch_factor: Batches that each makes ahead.
    """

    def __init__(self, num_workers: int, prefetch_factor: int) -> None:
        self._number = next(_NUMBERS)
        self._per_worker = prefetch_factor + 1
        # Of no file, so neither /dev/shm nor its limit (64 MB in many containers) has to do with it; a page is taken
        # when it is written to first.
        self._memory = _map_memory(max(1, num_workers * self._per_worker * SLOT_BYTES))
        self._num_sent = 0
        _SLOTS[self._number] = self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_memory": None}  # a worker that is no fork of this process has no part in it

    def send(self, batch: Any, worker: int, note: Any = None) -> Any:
        """Lay a batch into a slot, in a worker.

        Args:
            batch: What was made.
            worker: Number of this worker.
            note: Goes with it.

        Returns:
            What to hand over instead: where it lies, or batch and note themselves where that is of no use.
        """
        if self._memory is None or not isinstance(batch, dict) or not _is_sendable(_find_tensors(batch)):
            return batch, note
        content = _converted(batch, Tensor, lambda tensor: _SentTensor(tensor.numpy()))
        packed = pickle.dumps((content, note), protocol=pickle.HIGHEST_PROTOCOL)
        if len(packed) > SLOT_BYTES:
            return batch, note
        start = (worker * self._per_worker + self._num_sent % self._per_worker) * SLOT_BYTES
        self._num_sent += 1
        self.view(start, len(packed))[:] = packed
        return SentBatch(self._number, start, len(packed))

    def view(self, start: int, size: int) -> memoryview:
        """Return a part of the memory."""
        assert self._memory is not None, "only what was sent through it is read"
        return memoryview(self._memory)[start : start + size]


_NUMBERS = itertools.count()
_SLOTS: WeakValueDictionary[int, BatchSlots] = WeakValueDictionary()
"""Of this process, by number: what comes through a pipe can name them, not hold them."""


def receive(sent: Any) -> tuple[Any, Any]:
    """Return the batch that was sent, and its note."""
    batch, note = sent.read() if isinstance(sent, SentBatch) else sent
    return batch, note


def _find_tensors(batch: dict[str, Any]) -> list[Tensor]:
    found: list[Tensor] = []
    for value in batch.values():
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, dict):
            found.extend(_find_tensors(value))
    return found


def _is_sendable(tensors: list[Tensor]) -> bool:
    are_plain = all(
        tensor.dtype in _SENDABLE and tensor.device.type == "cpu" and not tensor.requires_grad for tensor in tensors
    )
    return are_plain and sum(tensor.nbytes for tensor in tensors) < SLOT_BYTES


def _map_memory(size: int) -> mmap.mmap | None:
    """Return memory that forks of this process share; nothing where the system promises no more than it has."""
    try:
        return mmap.mmap(-1, size)
    except OSError as error:
        logger.debug("batches take the way through shared tensors: %s", error)
        return None


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
