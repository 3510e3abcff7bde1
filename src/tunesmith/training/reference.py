"""The reference policy of a run: the policy without its adapter, or a frozen copy."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor, nn

from tunesmith.config import RunConfig
from tunesmith.models import LoadedModel
from tunesmith.models.heads import resolve_head
from tunesmith.objectives.completions import CompletionScorer
from tunesmith.objectives.reference import ReferencePolicy


@dataclass(frozen=True, slots=True)
class WithoutAdapter:
    """The base model: the policy with its adapter switched off, at the price of no memory."""

    scorer: CompletionScorer

    @property
    def equals_policy_at_start(self) -> bool:
        """A fresh adapter changes nothing."""
        return True

    def describe(self) -> str:
        """Return what the reference is."""
        return "the base model (the adapter switched off)"

    def completion_log_probabilities(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """See `ReferencePolicy.completion_log_probabilities`."""
        adapted = model
        while isinstance(adapted, nn.parallel.DistributedDataParallel):
            adapted = adapted.module
        assert isinstance(adapted, PeftModel), "made for adapters"
        with torch.no_grad(), adapted.disable_adapter():
            return self.scorer.score(adapted, batch).log_probabilities


@dataclass(frozen=True, slots=True)
class FrozenCopy:
    """The policy as it was before the first step, kept beside it."""

    model: nn.Module
    scorer: CompletionScorer

    @property
    def equals_policy_at_start(self) -> bool:
        """It is a copy."""
        return True

    def describe(self) -> str:
        """Return what the reference is."""
        return "a frozen copy of the model as training starts from it"

    def completion_log_probabilities(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """See `ReferencePolicy.completion_log_probabilities`."""
        with torch.no_grad():
            return self.scorer.score(self.model, batch).log_probabilities


def build_reference(config: RunConfig, loaded: LoadedModel, scorer: CompletionScorer) -> ReferencePolicy:
    """Return the reference of a run whose loss needs one.

    Args:
        config: Settings of the run.
        loaded: The policy, before its first step.
        scorer: What scores the policy.
    """
    adapter = config.adapter
    is_fresh = not adapter.adapter_name_or_path or adapter.create_new_adapter
    # Other first weights are taken out of the base model, which without the adapter is then no longer what it was.
    if is_fresh and isinstance(loaded.model, PeftModel) and adapter.init_lora_weights in {"default", "gaussian"}:
        return WithoutAdapter(scorer)
    return build_frozen_copy(loaded, scorer)


def build_frozen_copy(loaded: LoadedModel, scorer: CompletionScorer) -> FrozenCopy:
    """Return a copy of a model that nothing trains."""
    model: Any = copy.deepcopy(loaded.model)
    model.requires_grad_(False)
    model.eval()
    return FrozenCopy(
        model, CompletionScorer(resolve_head(model, loaded.precision), scorer.chunk_tokens, scorer.ld_alpha)
    )
