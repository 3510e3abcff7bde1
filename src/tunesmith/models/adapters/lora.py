"""LoRA adapters: new ones, and saved ones that are continued or merged."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from peft import LoraConfig, PeftConfig, PeftModel, PeftModelForCausalLM, TaskType, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from transformers import PreTrainedModel

from tunesmith.config import AdapterConfig
from tunesmith.errors import ModelError
from tunesmith.models.adapters.modules import resolve_module_names
from tunesmith.models.adapters.targets import resolve_targets
from tunesmith.models.completeness import explain_damaged_files
from tunesmith.models.reward.build import SCORE, is_reward_model

logger = logging.getLogger(__name__)


def add_lora(model: PreTrainedModel, config: AdapterConfig) -> tuple[PeftModel, tuple[str, ...]]:
    """Put a new adapter on a model.

    Returns:
        The wrapped model, and notes for the plan.

    Raises:
        ModelError: A target matches nothing, or cannot be combined with another setting.
    """
    targets = resolve_targets(model, config.lora_target)
    # Full names, because peft compares ends of words: its "norm" is every input_layernorm too.
    copies = resolve_module_names(model, config.additional_target, "additional_target")
    is_reward = is_reward_model(model)
    if targets.parameters and config.lora_dropout:
        raise ModelError(
            "lora_dropout: adapters on fused experts cannot have dropout. Set lora_dropout: 0 or take the experts out "
            "of lora_target."
        )
    if targets.parameters and config.use_dora:
        raise ModelError("use_dora: is not possible on fused experts. Take the experts out of lora_target.")
    lora = LoraConfig(
        task_type=TaskType.SEQ_CLS if is_reward else TaskType.CAUSAL_LM,
        r=config.lora_rank,
        lora_alpha=config.lora_alpha if config.lora_alpha is not None else 2 * config.lora_rank,
        lora_dropout=config.lora_dropout,
        target_modules=list(targets.modules),
        target_parameters=list(targets.parameters) or None,
        modules_to_save=[*copies, *([SCORE] if is_reward else [])] or None,
        use_rslora=config.use_rslora,
        use_dora=config.use_dora,
        ensure_weight_tying=_touches_tied_weights(model, copies),
    )
    try:
        with _renamed_flag_ignored():
            wrapped = get_peft_model(model, lora, autocast_adapter_dtype=True)
    except ValueError as error:  # peft's word on module kinds it has no adapter for
        raise ModelError(f"lora_target: {error}") from error
    return wrapped, targets.notes


def _touches_tied_weights(model: PreTrainedModel, names: Sequence[str]) -> bool:
    """Whether the trained copies include an embedding that the output head shares; both must stay one then."""
    if not model.config.get_text_config().tie_word_embeddings:
        return False
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    return any(module is end for name, module in model.named_modules() if name in names for end in ends)


def continue_adapter(model: PreTrainedModel, source: str) -> PeftModel:
    """Put a saved adapter on a model and go on training it; it will be saved as one of this model.

    Args:
        model: The base model, which may be another one than the adapter says.
        source: Folder of the adapter.
    """
    return attach_adapter(model, source, is_trainable=True)


def find_foreign_base(source: str, base: str) -> str | None:
    """Return which model an adapter says it belongs to, where that is another one than it is put on.

    Only the last parts of the names are compared: the same model may lie elsewhere, or come from a hub.
    """
    recorded = PeftConfig.from_pretrained(source).base_model_name_or_path
    return recorded if recorded and _last_part(recorded) != _last_part(base) else None


def _last_part(name: str) -> str:
    return name.replace("\\", "/").rstrip("/").rpartition("/")[2]


def merge_adapters(model: PreTrainedModel, sources: Sequence[str]) -> PreTrainedModel:
    """Add saved adapters to the weights of a model, one after the other, and return the plain model."""
    for source in sources:
        merged = attach_adapter(model, source).merge_and_unload()
        assert isinstance(merged, PreTrainedModel), "unloading gives the base model back"
        model = merged
        logger.info("merged the adapter %s", source)
    return model


def attach_adapter(model: PreTrainedModel, source: str, *, is_trainable: bool = False) -> PeftModel:
    """Put a saved adapter on a model, every weight of it.

    Args:
        model: The base model.
        source: Folder of the adapter.
        is_trainable: Whether its weights will be trained.

    Raises:
        ModelError: A file is damaged, or the adapter does not fit: a shape differs, or some of its weights have no
            place, or places of it no weights. peft itself leaves such weights out.
    """
    try:
        with _renamed_flag_ignored(), explain_damaged_files(source, Path(source), "adapter_name_or_path"):
            settings = PeftConfig.from_pretrained(source)
            if settings.is_prompt_learning:
                raise ModelError(
                    f"adapter_name_or_path: {source} is of kind {settings.peft_type.value}, which has no weights "
                    "to add to the model's. Give a LoRA adapter."
                )
            settings.inference_mode = not is_trainable
            settings.base_model_name_or_path = model.name_or_path  # of which it is one from here on
            # The wrapper of classifiers adds a trained head to any adapter, also to one that brings none.
            wrapped = (PeftModel if is_reward_model(model) else PeftModelForCausalLM)(model, settings)
            result = wrapped.load_adapter(source, "default", is_trainable=is_trainable)
    except (RuntimeError, ValueError, OSError) as error:
        raise _misfit(model, source, _first_detail(error)) from error
    if result.unexpected_keys:
        raise _misfit(model, source, f"nothing in the model takes its weight {result.unexpected_keys[0]}")
    if result.missing_keys:
        raise _misfit(model, source, f"it has no weight for {result.missing_keys[0]}")
    if not is_trainable:
        _untie_adapted_ends(model)
    return wrapped


def _untie_adapted_ends(model: PreTrainedModel) -> None:
    """Give the head weights of its own where an adapter changes it or the embedding, but not both alike.

    They share one matrix otherwise, and merging what was learnt for one end would change the other end too.
    """
    text = model.config.get_text_config()
    first, last = model.get_input_embeddings(), model.get_output_embeddings()
    if not text.tie_word_embeddings or not any(isinstance(end, BaseTunerLayer) for end in (first, last)):
        return
    head = last.get_base_layer() if isinstance(last, BaseTunerLayer) else last
    head.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=False)
    model.config.tie_word_embeddings = text.tie_word_embeddings = False


def _misfit(model: PreTrainedModel, source: str, reason: str) -> ModelError:
    return ModelError(
        f"adapter_name_or_path: {source} does not fit {type(model).__name__} or cannot be loaded: {reason}. "
        "Was it trained on another base model?"
    )


def _first_detail(error: Exception) -> str:
    """Return the first line of a message that says something; torch begins with a headline that does not."""
    lines = [line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return next((line for line in lines if not line.endswith(":")), lines[0])


@contextmanager
def _renamed_flag_ignored() -> Iterator[None]:
    """Keep quiet about a name that peft 0.21 asks for and transformers 5.24 has renamed; no user can act on it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        yield
