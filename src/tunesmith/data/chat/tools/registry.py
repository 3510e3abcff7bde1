"""The tool formats there are, and reading calls back: what a server does with an answer."""

import json
from collections.abc import Mapping

from tunesmith.data.chat.tools.formats import ParsedAnswer, ToolFormat, ToolSchemas
from tunesmith.data.chat.tools.json_calls import DEFAULT, GLM4, LING, LLAMA3, MINIMAX1, MISTRAL, QWEN
from tunesmith.data.chat.tools.notation_calls import GEMMA4, LFM2
from tunesmith.data.chat.tools.tagged_calls import GLM4_MOE, MINIMAX2, QWEN3_5, SEED_OSS
from tunesmith.errors import TemplateError

TOOL_FORMATS: Mapping[str, ToolFormat] = {
    tool_format.name: tool_format
    for tool_format in (
        QWEN,
        QWEN3_5,
        LLAMA3,
        MISTRAL,
        DEFAULT,
        GLM4,
        GLM4_MOE,
        GEMMA4,
        LFM2,
        LING,
        MINIMAX1,
        MINIMAX2,
        SEED_OSS,
    )
}
"""By name. Where a text could be of several, as with `ling` and `qwen`, the more usual one stands first."""


def resolve_tool_format(name: str) -> ToolFormat:
    """Return a tool format.

    Raises:
        TemplateError: There is none of this name.
    """
    found = TOOL_FORMATS.get(name)
    if found is None:
        raise TemplateError(f"tool format {name!r} is not known; known: {', '.join(TOOL_FORMATS)}.")
    return found


def parse_tool_calls(text: str, tool_format: str, tools: str | ToolSchemas | None = None) -> ParsedAnswer:
    """Read the tool calls of an answer.

    Args:
        text: What the model wrote, without the end marker. Special tokens have to be in it where the format uses some
            (mistral, lfm2, gemma4).
        tool_format: Name of the format, see `ChatTemplate.tool_format`.
        tools: Schemas of the tools that the model was given, as a list or its JSON text. Formats that write strings
            without quotes need them to tell the string "12" from the number.

    Returns:
        Words and calls; all of the text and no calls where it holds no well-formed call.

    Raises:
        TemplateError: There is no format of this name.
    """
    schemas: ToolSchemas = json.loads(tools) if isinstance(tools, str) else tools or ()
    return resolve_tool_format(tool_format).parse(text, schemas) or ParsedAnswer(text)
