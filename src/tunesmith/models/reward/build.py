"""A body and a score head, put together as the sequence classifier of the body's family.

What comes out is what `AutoModelForSequenceClassification` loads, so that anybody can use a trained reward model. The
body is taken over from a loaded language model, wherever that came from (a folder, a GGUF file, random weights).
"""

import logging
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase

from tunesmith.errors import ModelError
from tunesmith.models.heads import find_base_model
from tunesmith.models.reward.head import ScoreLinear
from tunesmith.models.reward.stored import StoredHead

logger = logging.getLogger(__name__)

SCORE = "score"
"""Name of the head in the models of transformers, and in `modules_to_save` of an adapter."""

_DEFAULT_SPREAD = 0.02


def is_reward_model(model: nn.Module) -> bool:
    """Whether a model, in whatever wrappers, gives scores instead of tokens."""
    return SCORE in dict(find_base_model(model).named_children())


def build_reward_model(
    language_model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, stored: StoredHead | None = None
) -> PreTrainedModel:
    """Put a score head on the body of a language model, whose output head is given up.

    Args:
        language_model: Gives its body, and its name.
        tokenizer: Its padding token goes into the configuration, see `padding`.
        stored: A head that was read from a file; without one, a new one is drawn from PyTorch's generator.

    Raises:
        ModelError: transformers has no sequence classifier with a score head for this family.
    """
    config = language_model.config
    config.num_labels = 1
    try:
        with torch.device("meta"):  # its body is about to be replaced
            model = AutoModelForSequenceClassification.from_config(config, dtype=language_model.dtype)
    except ValueError as error:
        raise _unknown_family(language_model) from error
    place = model.base_model_prefix
    children = dict(model.named_children())
    if SCORE not in children or place not in children or place != language_model.base_model_prefix:
        raise _unknown_family(language_model)
    setattr(model, place, language_model.base_model)
    set_head(model, stored)
    model.name_or_path = language_model.name_or_path
    model.config = config
    set_padding(model, tokenizer)
    reward_model: PreTrainedModel = model.train(language_model.training)
    return reward_model


def set_padding(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Write the tokenizer's padding token to the configuration, by which transformers' class finds where texts end."""
    model.config.pad_token_id = model.config.get_text_config().pad_token_id = tokenizer.pad_token_id


def set_head(model: PreTrainedModel, stored: StoredHead | None) -> None:
    """Put a head on a reward model: one that was read from a file, or a new one."""
    model.score = _build_head(model.config, stored)


def drop_head_bias(model: PreTrainedModel) -> None:
    """Take the bias off a head, for which transformers' class has no place; it moves every score alike."""
    bias = model.score.bias
    if bias is None:
        return
    logger.warning(
        "The score head has a bias of %.4g, for which a sequence classifier has no place. It is left out: every score "
        "is that much %s, and no comparison of scores changes.",
        float(bias),
        "lower" if float(bias) > 0 else "higher",
    )
    model.score.bias = None


def exact_parameters(model: nn.Module) -> set[int]:
    """Return the identities of the parameters that stay in float32 when a model is rounded to half precision."""
    heads = (module for module in model.modules() if isinstance(module, ScoreLinear))
    return {id(parameter) for head in heads for parameter in head.parameters()}


def _build_head(config: Any, stored: StoredHead | None) -> ScoreLinear:
    text = config.get_text_config()
    # A bias adds the same to every score. transformers' class has none, so one of zero is left out.
    has_bias = stored is not None and stored.bias is not None and bool(stored.bias.abs().sum())
    head = ScoreLinear(text.hidden_size, 1, bias=has_bias, dtype=torch.float32)
    with torch.no_grad():
        if stored is None:
            head.weight.normal_(0.0, float(text.to_dict().get("initializer_range", _DEFAULT_SPREAD)))
        else:
            head.weight.copy_(stored.weight)
            if has_bias and stored.bias is not None:
                head.bias.copy_(stored.bias)
    return head


def _unknown_family(model: PreTrainedModel) -> ModelError:
    return ModelError(
        f"stage: rm needs a sequence classifier with a score head, and transformers has none for "
        f"{type(model).__name__}. Use another model family, such as Llama, Qwen, Mistral or Gemma."
    )
