"""The trained weights of a model as they are now, to run the model with them again later.

A frozen copy of a policy differs from it in what is trained alone. So that alone is copied, an adapter's few megabytes
or the layers that are tuned, and exchanged with the present weights while the copy is wanted.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class StartWeights:
    """A copy of the trained weights of a model.

    Args:
        model: Its parameters that ask for gradients are copied, on their device.
    """

    def __init__(self, model: nn.Module) -> None:
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._weights: list[tuple[nn.Parameter, Tensor]] = [(each, each.detach().clone()) for each in trained]

    @property
    def num_bytes(self) -> int:
        """Memory of the copy."""
        return sum(copy.numel() * copy.element_size() for _, copy in self._weights)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Put the copy in place of the present weights until the block ends.

        Only storage changes hands: nothing is copied, and a graph that was built before the block can be run backwards
        after it.
        """
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        for place, (parameter, other) in enumerate(self._weights):
            present = parameter.data
            parameter.data = other
            self._weights[place] = (parameter, present)
        # Under autocast, half-precision copies of trained weights are kept by parameter, not by what it holds.
        torch.clear_autocast_cache()
