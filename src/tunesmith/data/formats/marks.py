"""Marks that say whether a turn is learnt: `train`, `weight` and `loss_mask`, on turns or beside them.

Beside the turns they are lists of the row with one entry for each turn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tunesmith.config.catalogue import MARK_COLUMNS
from tunesmith.data.formats.fields import UnusableRowError, read_flag, wrong_type
from tunesmith.data.records import Message, Role
from tunesmith.data.sources.dataset_spec import DatasetSpec

MARKS = MARK_COLUMNS
"""Names of marks on turns, and of columns beside them."""


def read_mark(turn: Mapping[str, Any], field: str, role: Role) -> bool | None:
    """Return whether a turn is learnt, where it says so itself.

    All three names mean the same: true or 1 is learnt, false or 0 is not. A weight between is refused: every learnt
    token counts the same in the loss, and its items are counted, so that a weight would have to change both.

    Args:
        turn: As it stands in the row.
        field: Where it stands, for messages.
        role: Who speaks. Prompts may be marked as not learnt, as they are anyway.

    Raises:
        UnusableRowError: A mark is no such value, two of them differ, or a turn that is not an answer is to be learnt.
    """
    marks = {name: turn[name] for name in MARKS if turn.get(name) is not None}
    return _settle(marks, field, role, lambda name: f"{field}.{name}") if marks else None


def with_row_marks(turns: Sequence[Message], values: Mapping[str, Any], spec: DatasetSpec) -> Sequence[Message]:
    """Return turns with the marks that stand beside them in the row, as lists with an entry for each turn.

    Entries that are nothing (null) leave a turn as it is. A column that is called so and holds no list means something
    else, unless the entry of the data set names it.

    Args:
        turns: As they stand in the row, in order; a system message from a column of its own is none of them.
        values: The row.
        spec: The data set.

    Raises:
        UnusableRowError: A list is not as long as there are turns, or a mark cannot be followed; see `read_mark`.
    """
    columns = (spec.columns.train, spec.columns.weight, spec.columns.loss_mask)
    lists = {column: marks for column in columns if column and (marks := _read_list(values, column, len(turns), spec))}
    if not lists:
        return turns
    marked = []
    for place, turn in enumerate(turns):
        found = {f"{column}[{place}]": marks[place] for column, marks in lists.items() if marks[place] is not None}
        if turn.trained is not None:
            found["its own mark"] = turn.trained
        marked.append(replace(turn, trained=_settle(found, f"turn {place + 1}", turn.role)) if found else turn)
    return marked


def _read_list(values: Mapping[str, Any], column: str, num_turns: int, spec: DatasetSpec) -> Sequence[Any] | None:
    marks = values.get(column)
    if marks is None:
        return None
    if not isinstance(marks, list | tuple):
        if column in spec.declared:
            raise wrong_type(column, "a list with an entry for each turn", marks)
        return None
    if len(marks) != num_turns:
        raise UnusableRowError(
            "marks do not fit the turns",
            f"{column}: expected {num_turns} entries, one for each turn, found {len(marks)} (if the column means "
            "something else, set it to null among the columns of the data set)",
        )
    return marks


def _settle(
    marks: Mapping[str, Any], turn: str, role: Role, locate: Callable[[str], str] = lambda name: name
) -> bool | None:
    """Return what the marks of one turn say together.

    Args:
        marks: One or more by name, none of them nothing.
        turn: Where the turn stands, for messages.
        role: Who speaks.
        locate: Where the mark of a name stands, for messages.
    """
    found: dict[str, bool] = {}
    for name in marks:
        try:
            found[name] = bool(read_flag(marks, name))
        except UnusableRowError:
            raise wrong_type(locate(name), "0 or 1 (shares of a weight are not possible)", marks[name]) from None
    if len(set(found.values())) > 1:
        said = ", ".join(f"{name} is {str(flag).lower()}" for name, flag in found.items())
        raise UnusableRowError("marks of a turn contradict each other", f"{turn}: {said}")
    (mark,) = set(found.values())
    if role == "assistant":
        return mark
    if mark:
        raise UnusableRowError(
            "mark on a turn that is not an answer",
            f"{turn} is of role {role}: expected no mark or 0, found {' and '.join(found)}; only answers are learnt, "
            "or all turns with train_on_prompt",
        )
    return None
