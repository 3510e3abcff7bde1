"""What a template does, found by rendering a few messages that cannot be mistaken for anything else."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tunesmith.data.chat.prefixes import Ending
from tunesmith.data.chat.render import RenderingRefusedError
from tunesmith.data.chat.template import ToolSupport
from tunesmith.data.chat.thinking import USUAL_TAGS, Tags, complete_text
from tunesmith.data.chat.tools import TOOL_FORMATS
from tunesmith.errors import TemplateError

Render = Callable[..., str]
"""Called as `render(messages, tools, add_generation_prompt)`."""

_QUESTION = "qTsQuestionTs"
_ANSWER = "aTsAnswerTs"
_PROBE_NAME = "tsProbeTool"
_PROBE_VALUE = "tsProbeValue"


def _user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _assistant(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def find_ending(
    render: Render,
    added_tokens: Sequence[str],
    eos_token: str | None = None,
    tags: Tags = USUAL_TAGS,
) -> Ending:
    """Return what the template prints after the words of an answer.

    The end marker is the first added token there, with the space before it; where no added token stands first, it
    is everything but the white space at the end. A template that prints nothing after an answer, as those of GLM and
    other families whose next header ends it, is helped out with the end token.

    Args:
        render: The template.
        added_tokens: Texts that the tokenizer reads as one token each.
        eos_token: End token of the tokenizer.
        tags: Texts around reasoning, for prompts that open it.

    Raises:
        TemplateError: Nothing follows an answer and there is no end token, so that a model could never learn to stop;
            or the answer or the prompt for it is not printed as it is.
    """
    try:
        prompt = render([_user(_QUESTION)], None, True)
        text = render([_user(_QUESTION), _assistant(_ANSWER)], None, False)
    except RenderingRefusedError as error:
        raise TemplateError(f"the chat template refuses a plain question and answer: {error.detail}") from error
    if text.count(_ANSWER) != 1:
        raise TemplateError("the chat template does not print an answer as it is")
    if not text.startswith(prompt) and complete_text(prompt, text, _assistant(_ANSWER), tags) is None:
        raise TemplateError(
            "the chat template's prompt for an answer is not how the text with the answer begins, so that a model "
            "trained on it would be asked differently when served: "
            f"prompt {prompt[-60:]!r}, text {text[: len(prompt) + 20][-80:]!r}"
        )
    rest = text[text.index(_ANSWER) + len(_ANSWER) :]
    space = len(rest) - len(rest.lstrip())
    first = max(
        (token for token in added_tokens if token.strip() and rest.startswith(token, space)), key=len, default=""
    )
    marker = rest[: space + len(first)] if first else rest.rstrip()
    if not marker:
        if eos_token is None:
            raise TemplateError(
                "the chat template prints no end marker after an answer and the tokenizer has no end token: a model "
                "would never learn to stop"
            )
        return Ending(eos_token, rest, is_printed=False)
    return Ending(marker, rest[len(marker) :])


def find_tool_support(render: Render) -> ToolSupport:
    """Return which parts of tool use leave a trace in the rendered text."""
    schema = {
        "type": "function",
        "function": {
            "name": _PROBE_NAME,
            "description": "Probe.",
            "parameters": {"type": "object", "properties": {"place": {"type": "string", "description": "Place."}}},
        },
    }
    call = {"type": "function", "function": {"name": _PROBE_NAME, "arguments": {"place": _PROBE_VALUE}}}
    asked = [_user(_QUESTION)]
    called = [*asked, {"role": "assistant", "content": "", "tool_calls": [call]}]
    answered = [*asked, _assistant(_ANSWER), {"role": "tool", "content": _PROBE_VALUE, "name": _PROBE_NAME}]
    after_call = [*called, {"role": "tool", "content": "tsResult", "name": _PROBE_NAME}]
    return ToolSupport(
        schemas=_prints(render, asked, [schema], _PROBE_NAME),
        calls=_prints(render, called, None, _PROBE_VALUE),
        results=_prints(render, answered, None, _PROBE_VALUE) or _prints(render, after_call, None, "tsResult"),
    )


def find_tool_format(render: Render, ending: Ending) -> str | None:
    """Return the format that the template prints calls in, where one of ours reads them back; or nothing."""
    arguments = {"place": _PROBE_VALUE, "number": 12}
    call = {"type": "function", "function": {"name": _PROBE_NAME, "arguments": arguments}}
    asked = [_user(_QUESTION)]
    try:
        prompt = render(asked, None, True)
        text = render([*asked, {"role": "assistant", "content": "", "tool_calls": [call]}], None, False)
    except RenderingRefusedError:
        return None
    answer = text.removeprefix(prompt).removesuffix(ending.tail)
    answer = answer.removesuffix(ending.marker) if ending.is_printed else answer
    for name, tool_format in TOOL_FORMATS.items():
        parsed = tool_format.parse(answer, ())
        if parsed is not None and [json.loads(found.arguments) for found in parsed.calls] == [arguments]:
            return name
    return None


def _prints(render: Render, messages: Sequence[Mapping[str, Any]], tools: list[Any] | None, text: str) -> bool:
    try:
        return text in render(messages, tools, False)
    except RenderingRefusedError:
        return False


def accepts_system(render: Render) -> bool:
    """Return whether the template prints a system message."""
    return _prints(render, [{"role": "system", "content": _PROBE_VALUE}, _user(_QUESTION)], None, _PROBE_VALUE)
