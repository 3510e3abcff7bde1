"""Reward models: the body of a language model with one number for a whole text instead of a next token.

build.py     a body and a score head, as the sequence classifier that transformers knows
head.py      running it: scores at chosen positions
stored.py    score heads in folders, ours and LLaMA-Factory's
padding.py   which token such a model is padded with
"""

from tunesmith.models.reward.build import build_reward_model, drop_head_bias, is_reward_model
from tunesmith.models.reward.head import ScoreHead, resolve_score_head
from tunesmith.models.reward.padding import set_scoring_pad
from tunesmith.models.reward.stored import describes_reward_model

__all__ = [
    "ScoreHead",
    "build_reward_model",
    "describes_reward_model",
    "drop_head_bias",
    "is_reward_model",
    "resolve_score_head",
    "set_scoring_pad",
]
