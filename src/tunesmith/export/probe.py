"""What two models are compared by: what they make of a short text."""

import torch
from torch import Tensor

from tunesmith.models.heads import find_base_model
from tunesmith.models.reward import ScoreHead, is_reward_model

PROBE_TEXT = "The quick brown fox jumps over the lazy dog. 你好，世界。 1 + 1 = 2\n"


def measure_logits(model: torch.nn.Module, probe: Tensor) -> Tensor:
    """Return the logits of the probe in float32, or of a reward model the score after every token.

    Shape [tokens, vocabulary or 1].
    """
    inputs = {"input_ids": probe.to(next(model.parameters()).device)}
    with torch.inference_mode():
        if is_reward_model(model):
            base = find_base_model(model)
            scores, _ = ScoreHead(base.score, base.get_decoder()).score(model, inputs, torch.arange(probe.numel()))
            return scores[:, None].cpu()
        logits: Tensor = model(**inputs, use_cache=False).logits[0]
    return logits.float().cpu()
