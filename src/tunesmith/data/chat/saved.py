"""What a run puts before the text of a template, so that a server which only has that text does the same."""

import json

from tunesmith.data.chat.thinking import Thinking
from tunesmith.errors import TemplateError


def with_default_system(source: str, default_system: str | None) -> str:
    """Put the default system message into the template itself."""
    if default_system is None:
        return source
    text = json.dumps(default_system, ensure_ascii=False)
    return _before(
        "{%- if not messages or messages[0]['role'] != 'system' -%}"
        "{%- set messages = [{'role': 'system', 'content': " + text + "}] + messages -%}"
        "{%- endif -%}",
        source,
    )


def with_thinking(source: str, thinking: Thinking) -> str:
    """Make what the run says about reasoning the default of the template; a server may still say otherwise.

    Raises:
        TemplateError: Earlier reasoning shall stay, and the template always drops it.
    """
    if thinking.enabled is False and thinking.is_switchable:
        source = _before(_default("enable_thinking", "false"), source)
    if thinking.preserved:
        if "preserve_thinking" in source:
            source = _before(_default("preserve_thinking", "true"), source)
        elif "clear_thinking" in source:
            source = _before(_default("clear_thinking", "false"), source)
        elif thinking.tags.closing in source:
            raise TemplateError(
                "preserve_thinking is set, but the tokenizer's chat template has no such switch and drops earlier "
                "reasoning. Leave preserve_thinking out, or name a template of ours that has it, such as qwen3."
            )
    return source


def with_start_token(source: str) -> str:
    """Print the start token first."""
    return _before("{{- bos_token -}}", source)


def _default(name: str, value: str) -> str:
    return f"{{%- if {name} is not defined -%}}{{%- set {name} = {value} -%}}{{%- endif -%}}"


def _before(header: str, source: str) -> str:
    """Put a header before a text that does not have it yet, as that of a run that is continued has."""
    return source if header in source else header + source
