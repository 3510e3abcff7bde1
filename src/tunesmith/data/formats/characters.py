r"""Texts that no tokenizer takes: halves of characters, which JSON can write (`"\ud83d"`) and UTF-8 cannot.

They come from programs that cut text between the two halves of an emoji. And the noncharacter that marks text while it
is rendered: it would be gone from what is trained.
"""

import json

from tunesmith.data.chat.literals import MARK
from tunesmith.data.formats.fields import UnusableRowError
from tunesmith.data.records import Conversation, Document, Feedback, Message, Preference, Record


def check_characters(record: Record) -> None:
    """Make sure that every text of a record is whole.

    Raises:
        UnusableRowError: One holds half of a character, or the noncharacter that stands for no text.
    """
    if isinstance(record, Document):
        _check(record.text, "text")
        return
    for turn, message in enumerate(_messages(record), start=1):
        _check(message.content, f"turn {turn}")
        for call in message.tool_calls:
            _check(call.name, f"turn {turn}, name of a tool call")
            _check(_unescaped(call.arguments), f"turn {turn}, arguments of a tool call")
    if record.tools is not None:
        _check(_unescaped(record.tools), "tools")


def _messages(record: Conversation | Preference | Feedback) -> tuple[Message, ...]:
    if isinstance(record, Preference):
        return (*record.prompt, *record.chosen, *record.rejected)
    return (*record.prompt, *record.completion) if isinstance(record, Feedback) else record.messages


def _check(text: str, place: str) -> None:
    if text.isascii():  # Python knows it of every text; the others are encoded to see
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ascii(text[error.start])
        raise UnusableRowError("half of a character", f"{place}: {half} at character {error.start + 1}") from error
    if MARK in text:
        raise UnusableRowError("a noncharacter", f"{place}: {MARK!a} at character {text.index(MARK) + 1}")


def _unescaped(json_text: str) -> str:
    r"""Return JSON text as templates print it, without `\u` escapes."""
    return json.dumps(json.loads(json_text), ensure_ascii=False) if "\\u" in json_text else json_text
