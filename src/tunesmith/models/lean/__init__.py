"""Layers that compute the same numbers while keeping less for the backward pass and calling less.

A LoRA step spends a third of its processor time and most of its memory outside the large matrix products: thin products
in the slow orientation, sums into fresh tensors, activations kept that are cheap to make again. Each module here
replaces the forward of one kind of layer and steps aside, call by call, where its conditions do not hold; `shared`
joins LoRA layers that read the same input.
"""

from tunesmith.models.lean.apply import LeanLayers, use_lean_layers

__all__ = ["LeanLayers", "use_lean_layers"]
