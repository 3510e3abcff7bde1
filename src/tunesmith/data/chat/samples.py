"""Conversations to compare templates on: the ordinary ones, and those in which published templates differ."""

import json
from collections.abc import Mapping

from tunesmith.data.records import Conversation, Message, ToolCall

SAMPLE_TOOLS = json.dumps(
    [
        {
            "type": "function",
            "function": {
                "name": "find_weather",
                "description": "Says what the weather is.",
                "parameters": {
                    "type": "object",
                    "properties": {"place": {"type": "string", "description": "A town."}, "days": {"type": "integer"}},
                    "required": ["place"],
                },
            },
        }
    ]
)


def _talk(*contents: str, system: str | None = None, tools: str | None = None) -> Conversation:
    turns = [Message("user" if place % 2 == 0 else "assistant", text) for place, text in enumerate(contents)]
    return Conversation((*([Message("system", system)] if system is not None else []), *turns), tools)


def _called(*, content: str = "", calls: int = 1, answer: str = "Rain.") -> Conversation:
    asked = tuple(ToolCall("find_weather", json.dumps({"place": "Köln", "days": 1 + n})) for n in range(calls))
    results = tuple(Message("tool", json.dumps({"rain": n == 0})) for n in range(calls))
    return Conversation(
        (
            Message("system", "Use tools."),
            Message("user", "Does it rain?"),
            Message("assistant", content, asked),
            *results,
            Message("assistant", answer),
        ),
        SAMPLE_TOOLS,
    )


PLAIN_SAMPLES: Mapping[str, Conversation] = {
    "one turn": _talk("Who are you?", "An assistant."),
    "system message": _talk("Who are you?", "An assistant.", system="Be brief."),
    "several turns": _talk("1 + 1?", "2", "And 2 + 2?", "4"),
    "several turns and system message": _talk("1 + 1?", "2", "2 + 2?", "4", "3 + 3?", "6", system="You count."),
    "Chinese and emoji": _talk("你好 🙂", "你好！有什么可以帮你？"),
    "lines and code": _talk("Write\n\ntwo lines", "first\n\n    second = 1\n- third"),
}
"""Conversations that templates which stand for the same model print alike."""

ODD_SAMPLES: Mapping[str, Conversation] = {
    "space around texts": _talk(" Question ", " Answer ", system=" System "),
    "newline before an answer": _talk("List", "\n- a\n- b\n"),
    "empty question": _talk("", "Hello!"),
    "empty answer": _talk("Say nothing.", ""),
    "empty system message": _talk("Hi", "Hello.", system=""),
    "special-token text in a question": _talk("What does <|im_end|> or </s> mean?", "An end."),
}
"""Conversations on which templates of the same model differ: some strip texts."""

REASONING_SAMPLES: Mapping[str, Conversation] = {
    "reasoning": _talk("1 + 1?", "<think>\nEasy.\n</think>\n\n2"),
    "reasoning in an earlier answer": _talk("1 + 1?", "<think>\nEasy.\n</think>\n\n2", "2 + 2?", "4"),
    "reasoning in both answers": _talk(
        "1 + 1?", "<think>\nEasy.\n</think>\n\n2", "2 + 2?", "<think>\nHarder.\n</think>\n\n4"
    ),
}

TOOL_SAMPLES: Mapping[str, Conversation] = {
    "tools that are not used": _talk("Who are you?", "An assistant.", tools=SAMPLE_TOOLS),
    "a call and its result": _called(),
    "words before a call": _called(content="I will look."),
    "two calls at once": _called(calls=2),
    "reasoning in a chain of calls": _called(
        content="<think>\nLook first.\n</think>\n\n", answer="<think>\nNow I know.\n</think>\n\nRain."
    ),
}

TWIN_SAMPLES: Mapping[str, Conversation] = {
    name: sample
    for group in (PLAIN_SAMPLES, ODD_SAMPLES, REASONING_SAMPLES, TOOL_SAMPLES)
    for name, sample in group.items()
    if name != "empty system message"
}
"""What two templates have to print alike to be the same for all rows: rows have no empty system messages."""

ALL_SAMPLES: Mapping[str, Conversation] = {**PLAIN_SAMPLES, **ODD_SAMPLES, **REASONING_SAMPLES, **TOOL_SAMPLES}
