"""Activations that wait for the backward pass in the memory of the host instead of that of the device."""

from collections.abc import Iterable
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

_SMALLEST_BYTES = 2**20
"""Below this a copy costs more than the memory is worth."""


class _Parked(NamedTuple):
    device: torch.device
    copy: Tensor


class ActivationOffload:
    """Within this context, what autograd keeps of a forward pass goes to the host, weights apart.

    Use it around each forward pass; the backward pass may run outside and fetches what it needs.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], *, smallest_bytes: int = _SMALLEST_BYTES, device_type: str = "cuda"
    ) -> None:
        """Prepare the context.

        Args:
            parameters: Of the model: they are on the device anyway, and views of them are kept for every product.
            smallest_bytes: Smaller tensors stay.
            device_type: Kind of device whose tensors go; the tests have no other than the CPU.
        """
        self._weights = {parameter.untyped_storage().data_ptr() for parameter in parameters}
        self._smallest_bytes = smallest_bytes
        self._device_type = device_type
        self._hooks: saved_tensors_hooks | None = None
        self.parked_bytes = 0
        """What has gone to the host so far, over all passes."""

    def __enter__(self) -> Self:
        self._hooks = saved_tensors_hooks(self._park, self._fetch)
        self._hooks.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._hooks is not None, "entered before"
        self._hooks.__exit__(kind, error, trace)

    def _park(self, tensor: Tensor) -> Any:
        size = tensor.numel() * tensor.element_size()
        stays = tensor.device.type != self._device_type or size < self._smallest_bytes or tensor.is_sparse
        if stays or tensor.untyped_storage().data_ptr() in self._weights:
            return tensor
        is_pinned = tensor.device.type == "cuda"
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=is_pinned)
        copy.copy_(tensor, non_blocking=is_pinned)
        self.parked_bytes += size
        return _Parked(tensor.device, copy)

    @staticmethod
    def _fetch(kept: Any) -> Tensor:
        if isinstance(kept, _Parked):
            return kept.copy.to(kept.device, non_blocking=True)
        tensor: Tensor = kept
        return tensor
