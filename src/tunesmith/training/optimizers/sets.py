"""Several optimizers that look like one, to a scheduler, to accelerate and to a checkpoint."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

Groups = list[dict[str, Any]]
"""Parameter groups, as every optimizer of PyTorch takes them."""


class OptimizerSet(Optimizer):
    """Optimizers of disjoint parameters, stepped together."""

    def __init__(self, members: Sequence[Optimizer]) -> None:
        """Put optimizers together.

        Args:
            members: Each with groups of its own. The set shows the very same dictionaries, so that a learning rate set
                here is set there.
        """
        self.members = tuple(members)
        groups = [group for member in members for group in member.param_groups]
        super().__init__([{"params": group["params"], "lr": group["lr"]} for group in groups], {})
        self.param_groups = groups

    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Take a step with each."""
        for member in self.members:
            member.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters."""
        for member in self.members:
            member.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all, in order."""
        return {"members": [member.state_dict() for member in self.members]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the states of all, in order."""
        for member, state in zip(self.members, state_dict["members"], strict=True):
            member.load_state_dict(state)
        self.param_groups = [group for member in self.members for group in member.param_groups]


class InBackward(OptimizerSet):
    """One optimizer for each parameter, stepped as soon as its gradient is there; the gradient is freed."""

    def __init__(self, make: Callable[[Groups], Optimizer], groups: Groups) -> None:
        """Put hooks on all parameters.

        Args:
            make: Builds an optimizer from groups.
            groups: Of all trained parameters.
        """
        members = []
        for group in groups:
            for parameter in group["params"]:
                member = make([{**group, "params": [parameter]}])
                members.append(member)
                parameter.register_post_accumulate_grad_hook(_StepAndFree(member))
        super().__init__(members)

    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Do nothing: every parameter has been updated during the backward pass."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Do nothing: every gradient has been freed."""


class _StepAndFree:
    def __init__(self, member: Optimizer) -> None:
        self._member = member

    def __call__(self, parameter: torch.Tensor) -> None:
        self._member.step()
        self._member.zero_grad()
