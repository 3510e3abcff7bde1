"""A reward model ready to rate texts: model, tokenizer and chat template of a configuration, in one piece."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedTokenizerBase

from tunesmith.config import RunConfig
from tunesmith.data.chat import ChatTemplate, resolve_template
from tunesmith.data.collators import build_collator
from tunesmith.inference.load import hide_progress_without_terminal, load_run_tokenizer
from tunesmith.models import load_model
from tunesmith.models.reward import ScoreHead, resolve_score_head, set_scoring_pad

TokenIds = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class RewardScorer:
    """Rates texts with a reward model."""

    model: nn.Module
    head: ScoreHead
    tokenizer: PreTrainedTokenizerBase
    template: ChatTemplate | None
    """`None` for a tokenizer without one, with which plain texts can be rated."""

    batch_size: int = 8
    note: str = ""
    """Where the score head comes from."""

    def score(self, texts: Sequence[TokenIds]) -> list[float]:
        """Return the score of each text, at its last token; texts of like length are computed together.

        Args:
            texts: Token ids, one array per text, none of them empty.
        """
        scores = [0.0] * len(texts)
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        for start in range(0, len(order), self.batch_size):
            numbers = order[start : start + self.batch_size]
            for number, score in zip(numbers, self._score_batch([texts[number] for number in numbers]), strict=True):
                scores[number] = score
        return scores

    def _score_batch(self, texts: Sequence[TokenIds]) -> list[float]:
        collate = build_collator("padded", pad_token_id=int(self.tokenizer.pad_token_id or 0))
        nothing = np.zeros(0, dtype=np.int32)
        batch = collate([{"input_ids": ids, "trained_spans": nothing, "row_id": 0} for ids in texts])
        device = next(self.model.parameters()).device
        inputs = {name: batch[name].to(device) for name in ("input_ids", "attention_mask")}
        width = batch["input_ids"].shape[1]
        last = torch.tensor([row * width + len(ids) - 1 for row, ids in enumerate(texts)])
        with torch.inference_mode():
            scores, _ = self.head.score(self.model, inputs, last)
        found: list[float] = scores.tolist()
        return found


def load_reward_scorer(config: RunConfig) -> RewardScorer:
    """Load the reward model of a configuration, with its adapters.

    Raises:
        ModelError: It is none: it has no score head, or one that does not fit.
    """
    hide_progress_without_terminal()
    config = replace(config, objective=replace(config.objective, stage="rm"))
    tokenizer = load_run_tokenizer(config)
    # Plain texts can be rated without a template; conversations will be refused.
    has_none = config.data.template == "auto" and tokenizer.chat_template is None
    template = None if has_none else resolve_template(config.data, tokenizer)
    set_scoring_pad(tokenizer, template.end_markers if template is not None else ())
    loaded = load_model(config, tokenizer, is_trainable=False)
    return RewardScorer(
        loaded.model,
        resolve_score_head(loaded.model, loaded.precision),
        tokenizer,
        template,
        batch_size=config.training.per_device_eval_batch_size,
        note=next((note for note in loaded.notes if note.startswith("the score head")), ""),
    )
