"""Conversations as text: our templates, the tokenizer's own, and which part of the text is an answer."""

from tunesmith.data.chat.catalog import template_names
from tunesmith.data.chat.render import RenderingRefusedError
from tunesmith.data.chat.resolve import resolve_template
from tunesmith.data.chat.segment import Segment
from tunesmith.data.chat.template import ChatTemplate

__all__ = ["ChatTemplate", "RenderingRefusedError", "Segment", "resolve_template", "template_names"]
