"""The reference policy of a run: the policy without its adapter, with its first weights, or another model."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor, nn

from tunesmith.config import RunConfig
from tunesmith.errors import ModelError
from tunesmith.models import LoadedModel, load_model, load_tokenizer
from tunesmith.models.heads import resolve_head
from tunesmith.models.start_weights import StartWeights
from tunesmith.objectives.base import Objective
from tunesmith.objectives.completions import CompletionScorer
from tunesmith.objectives.feedback import FeedbackObjective
from tunesmith.objectives.preference import PreferenceObjective
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
        adapted = _unwrap(model)
        assert isinstance(adapted, PeftModel), "made for adapters"
        with torch.no_grad(), adapted.disable_adapter():
            return self.scorer.score(adapted, batch).log_probabilities


@dataclass(frozen=True, slots=True)
class WithStartWeights:
    """The policy as it was before the first step: what is trained of it was copied, and is put back for the while."""

    start: StartWeights
    scorer: CompletionScorer
    what: str
    """What was copied."""

    @property
    def equals_policy_at_start(self) -> bool:
        """It is a copy."""
        return True

    def describe(self) -> str:
        """Return what the reference is."""
        size = f"{self.start.num_bytes / 1e9:.2g} GB"
        return f"the model as training starts from it (a frozen copy of {self.what}, {size})"

    def completion_log_probabilities(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """See `ReferencePolicy.completion_log_probabilities`."""
        with torch.no_grad(), self.start.restored():
            return self.scorer.score(_unwrap(model), batch).log_probabilities


@dataclass(frozen=True, slots=True)
class OtherModel:
    """A model that stands beside the policy."""

    model: nn.Module
    scorer: CompletionScorer
    name: str
    equals_policy_at_start: bool

    def describe(self) -> str:
        """Return what the reference is."""
        return self.name

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

    Raises:
        ModelError: `ref_model` cannot be loaded, or has another vocabulary.
    """
    adapter = config.adapter
    if config.reference.ref_model is not None:
        return _load_other_model(config, loaded, scorer)
    is_fresh = not adapter.adapter_name_or_path or adapter.create_new_adapter
    if not isinstance(loaded.model, PeftModel):
        what = "the trained layers" if adapter.finetuning_type == "freeze" else "all weights"
        return WithStartWeights(StartWeights(loaded.model), scorer, what)
    if not is_fresh:
        return WithStartWeights(StartWeights(loaded.model), scorer, f"the adapter {adapter.adapter_name_or_path[-1]}")
    return WithoutAdapter(scorer)  # rules refuse first weights of an adapter that would change the base


def find_reference_model(objective: Objective) -> nn.Module | None:
    """Return the model that stands beside the policy as its reference; `None` where it is the policy or none."""
    if not isinstance(objective, PreferenceObjective | FeedbackObjective):
        return None
    return objective.reference.model if isinstance(objective.reference, OtherModel) else None


def _load_other_model(config: RunConfig, policy: LoadedModel, scorer: CompletionScorer) -> OtherModel:
    settings = config.reference
    other = replace(
        config,
        model=replace(
            config.model, model_name_or_path=settings.ref_model, infer_dtype=_name(policy.precision.frozen_dtype)
        ),
        adapter=replace(config.adapter, adapter_name_or_path=settings.ref_model_adapters),
        quantization=replace(config.quantization, quantization_bit=settings.ref_model_quantization_bit),
    )
    with _naming_the_reference():
        tokenizer = load_tokenizer(other.model)
    _check_same_tokens(tokenizer.get_vocab(), load_tokenizer(config.model).get_vocab(), str(settings.ref_model))
    with _naming_the_reference():
        loaded = load_model(other, tokenizer, is_trainable=False)
    loaded.model.config.use_cache = False  # whole rows are scored, nothing is generated
    parts = [str(settings.ref_model), *settings.ref_model_adapters]
    bits = settings.ref_model_quantization_bit
    size = sum(weight.numel() * weight.element_size() for weight in loaded.model.parameters()) / 1e9
    name = f"{' with '.join(parts)}{f' in {bits} bits' if bits else ''} (a model of its own, {size:.2g} GB)"
    scorer = replace(scorer, head=resolve_head(loaded.model, loaded.precision))
    return OtherModel(loaded.model, scorer, name, equals_policy_at_start=False)


@contextmanager
def _naming_the_reference() -> Iterator[None]:
    """Let what is said about loading a model be said about the settings that a reference comes from."""
    try:
        yield
    except ModelError as error:
        message = str(error)
        for key, ours in (("model_name_or_path", "ref_model"), ("adapter_name_or_path", "ref_model_adapters")):
            message = message.replace(key, ours)
        raise ModelError(message) from error


def _check_same_tokens(theirs: Mapping[str, int], ours: Mapping[str, int], name: str) -> None:
    """Compare the tokens that both know; one may have a few more that no row holds."""
    differing = [token for token, number in ours.items() if theirs.get(token, number) != number]
    if differing or len(theirs.keys() & ours.keys()) < min(len(theirs), len(ours)):
        raise ModelError(
            f"ref_model: {name} has another vocabulary than the model"
            f"{f' (token {differing[0]!r} has another number)' if differing else ''}, so it cannot rate the same token "
            "ids. Use a reference of the same family."
        )


def _unwrap(model: nn.Module) -> nn.Module:
    while isinstance(model, nn.parallel.DistributedDataParallel):
        model = model.module
    return model


def _name(dtype: torch.dtype) -> Any:
    return str(dtype).removeprefix("torch.")
