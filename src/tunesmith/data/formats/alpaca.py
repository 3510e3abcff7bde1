r"""Alpaca rows: instruction, input, output, and optionally earlier question-answer pairs.

{"instruction": "Add.", "input": "1 and 2", "output": "3"}
-> user "Add.\n1 and 2", assistant "3"
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tunesmith.data.formats.completions import build_feedback, build_preference, read_margin, read_verdict
from tunesmith.data.formats.fields import (
    FillText,
    UnusableRowError,
    describe_missing,
    read_list,
    read_text,
    wrong_type,
)
from tunesmith.data.formats.marks import with_row_marks
from tunesmith.data.formats.tools import read_tools
from tunesmith.data.records import Conversation, Document, Feedback, Message, Preference
from tunesmith.data.sources.dataset_spec import DatasetSpec


def convert_alpaca(values: Mapping[str, Any], spec: DatasetSpec, fill: FillText) -> Conversation:
    """Return the conversation of a row: system, history, question, answer.

    An empty answer is an answer (the model learns to stop at once); a missing one drops the row.
    """
    answer = Message("assistant", fill(_answer(values, spec.columns.response)))
    system, turns = _system(values, spec, fill), _turns(values, spec, fill)
    turns = with_row_marks([*turns, answer], values, spec)
    return Conversation((*system, *turns), read_tools(values, spec.columns.tools))


def convert_alpaca_preference(values: Mapping[str, Any], spec: DatasetSpec, fill: FillText) -> Preference:
    """Return the pair of a row: system, history and question, and an answer from each of two columns."""
    columns = spec.columns
    chosen, rejected = (
        [Message("assistant", fill(_answer(values, column)))] for column in (columns.chosen, columns.rejected)
    )
    return build_preference(
        _prompt(values, spec, fill),
        chosen,
        rejected,
        tools=read_tools(values, columns.tools),
        margin=read_margin(values, columns.margin),
    )


def convert_alpaca_feedback(values: Mapping[str, Any], spec: DatasetSpec, fill: FillText) -> Feedback:
    """Return the rated answer of a row; an empty answer is an answer, whatever is said of it."""
    answer = Message("assistant", fill(_answer(values, spec.columns.response)))
    verdict = read_verdict(values, spec.columns.kto_tag)
    return build_feedback(
        [*_prompt(values, spec, fill), answer], is_desirable=verdict, tools=read_tools(values, spec.columns.tools)
    )


def convert_alpaca_document(values: Mapping[str, Any], spec: DatasetSpec, fill: FillText) -> Document:
    """Return a row as one document for continued pre-training: its texts, one after the other."""
    columns = spec.columns
    parts = [read_text(values, column) for column in (columns.prompt, columns.query, columns.response)]
    text = "\n".join(part for part in parts if part)
    if not text.strip():
        raise UnusableRowError("no text", describe_missing(values, columns.prompt))
    return Document(fill(text))


def _prompt(values: Mapping[str, Any], spec: DatasetSpec, fill: FillText) -> list[Message]:
    return [*_system(values, spec, fill), *_turns(values, spec, fill)]


def _system(values: Mapping[str, Any], spec: DatasetSpec, fill: FillText) -> list[Message]:
    text = read_text(values, spec.columns.system)
    return [Message("system", fill(text))] if text else []


def _turns(values: Mapping[str, Any], spec: DatasetSpec, fill: FillText) -> Sequence[Message]:
    """Return the earlier questions and answers, and the question."""
    columns = spec.columns
    messages: list[Message] = []
    if columns.history is not None:
        for place, pair in enumerate(read_list(values, columns.history)):
            messages.extend(_history_pair(pair, f"{columns.history}[{place}]", fill))
    return [*messages, Message("user", fill(_question(values, spec)))]


def _answer(values: Mapping[str, Any], column: str | None) -> str:
    answer = None if column is None else values.get(column)
    if answer is None:
        raise UnusableRowError("no answer", describe_missing(values, column))
    if not isinstance(answer, str):
        raise wrong_type(column or "", "text", answer)
    return answer


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
