"""Conversations as text: our templates, the tokenizer's own, and which part of the text is an answer."""

from tunesmith.data.chat.catalog import template_names
from tunesmith.data.chat.render import RenderingRefusedError
from tunesmith.data.chat.resolve import TemplateChoice, resolve_ours, resolve_template
from tunesmith.data.chat.segment import Segment
from tunesmith.data.chat.template import ChatTemplate
from tunesmith.data.chat.tools import ParsedAnswer, parse_tool_calls

__all__ = [
    "ChatTemplate",
    "ParsedAnswer",
    "RenderingRefusedError",
    "Segment",
    "TemplateChoice",
    "parse_tool_calls",
    "resolve_ours",
    "resolve_template",
    "template_names",
]
