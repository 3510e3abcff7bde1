"""Tools and calls as text: how the formats of the model families are printed, and read back from an answer."""

from tunesmith.data.chat.tools.formats import ParsedAnswer, ToolFormat
from tunesmith.data.chat.tools.registry import TOOL_FORMATS, parse_tool_calls, resolve_tool_format

__all__ = ["TOOL_FORMATS", "ParsedAnswer", "ToolFormat", "parse_tool_calls", "resolve_tool_format"]
