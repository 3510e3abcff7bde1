"""Prompts to ids by the rules that training rows are made with."""

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from tunesmith.data.chat.literals import MARK
from tunesmith.data.chat.template import ChatTemplate
from tunesmith.data.records import Message
from tunesmith.data.tokenization.conversation import probe_rows
from tunesmith.data.tokenization.pieces import build_piece_encoder


def encode_prompt(
    tokenizer: PreTrainedTokenizerBase,
    template: ChatTemplate,
    messages: Sequence[Message | Mapping[str, Any]],
    tools: str | Sequence[Mapping[str, Any]] | None = None,
) -> list[int]:
    """Return the ids that ask a model for the next answer.

    Special-token text inside a question stays text, unless the template was made with `allow_special_tokens`.

    Raises:
        RenderingRefusedError: The template does not take these messages.
    """
    prompt = template.render_protected_prompt(messages, tools)
    if MARK in prompt:
        ((ids,),) = build_piece_encoder(tokenizer, probe_rows(template)).encode([[prompt]])
        found: list[int] = ids.tolist()
        return found
    # The template writes the start token itself; the tokenizer must not put a second one before it.
    return list(tokenizer(prompt, add_special_tokens=False)["input_ids"])
