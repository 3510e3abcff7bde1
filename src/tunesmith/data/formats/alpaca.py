r"""Alpaca rows: instruction, input, output, and optionally earlier question-answer pairs.

{"instruction": "Add.", "input": "1 and 2", "output": "3"}
-> user "Add.\n1 and 2", assistant "3"
"""

from collections.abc import Mapping
from typing import Any

from tunesmith.data.formats.fields import (
    FillText,
    UnusableRowError,
    describe_missing,
    read_list,
    read_text,
    wrong_type,
)
from tunesmith.data.formats.tools import read_tools
from tunesmith.data.records import Conversation, Document, Message
from tunesmith.data.sources.dataset_spec import DatasetSpec


def convert_alpaca(values: Mapping[str, Any], spec: DatasetSpec, fill: FillText) -> Conversation:
    """Return the conversation of a row: system, history, question, answer.

    An empty answer is an answer (the model learns to stop at once); a missing one drops the row.
    """
    columns = spec.columns
    messages: list[Message] = []
    if columns.system is not None and (system := read_text(values, columns.system)):
        messages.append(Message("system", fill(system)))
    if columns.history is not None:
        for place, pair in enumerate(read_list(values, columns.history)):
            messages.extend(_history_pair(pair, f"{columns.history}[{place}]", fill))
    answer = values.get(columns.response) if columns.response is not None else None
    if answer is None:
        raise UnusableRowError("no answer", describe_missing(values, columns.response))
    if not isinstance(answer, str):
        raise wrong_type(columns.response or "", "text", answer)
    messages.append(Message("user", fill(_question(values, spec))))
    messages.append(Message("assistant", fill(answer)))
    return Conversation(tuple(messages), read_tools(values, columns.tools))


def convert_alpaca_document(values: Mapping[str, Any], spec: DatasetSpec, fill: FillText) -> Document:
    """Return a row as one document for continued pre-training: its texts, one after the other."""
    columns = spec.columns
    parts = [read_text(values, column) for column in (columns.prompt, columns.query, columns.response)]
    text = "\n".join(part for part in parts if part)
    if not text.strip():
        raise UnusableRowError("no text", describe_missing(values, columns.prompt))
    return Document(fill(text))


def _question(values: Mapping[str, Any], spec: DatasetSpec) -> str:
    columns = spec.columns
    prompt = read_text(values, columns.prompt)
    query = read_text(values, columns.query)
    if columns.prompt not in values and not query:  # an empty question is one only where the row says so
        raise UnusableRowError("no question", describe_missing(values, columns.prompt))
    return f"{prompt}\n{query}" if prompt and query else prompt or query


def _history_pair(pair: object, field: str, fill: FillText) -> tuple[Message, Message]:
    if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
        raise wrong_type(field, "a pair of texts [question, answer]", pair)
    return Message("user", fill(pair[0])), Message("assistant", fill(pair[1]))
