"""Toy models, one small configuration per family, with random but fixed weights."""

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto import CONFIG_MAPPING

FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3_text", "cohere", "granite", "phi3")

_EXTRA: dict[str, dict[str, object]] = {
    "gemma2": {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 16, "final_logit_softcapping": 5.0},
    "gemma3_text": {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 16},
    "qwen3": {"head_dim": 8},
    "cohere": {"logit_scale": 0.25},
    "granite": {"logits_scaling": 4.0, "residual_multiplier": 0.5, "attention_multiplier": 0.3},
    "phi3": {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    "mistral": {"sliding_window": None},
}


def tiny_model(
    family: str = "llama",
    *,
    vocab_size: int = 420,
    tied: bool = True,
    layers: int = 2,
    seed: int = 0,
    **overrides: object,
) -> PreTrainedModel:
    """Build a model of a family: hidden size 32, 4 heads, 2 key-value heads, float32, in evaluation mode."""
    settings: dict[str, object] = {
        "vocab_size": vocab_size,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": tied,
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": 2,
        **_EXTRA.get(family, {}),
        **overrides,
    }
    torch.manual_seed(seed)
    config = CONFIG_MAPPING[family](**settings)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():  # spread the weights, or every logit is nearly zero and no difference shows
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.08)
    return model.eval()
