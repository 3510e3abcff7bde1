"""Marks on turns that say whether they are learnt: `train`, `weight` and `loss_mask`."""

from collections.abc import Mapping
from typing import Any

from tunesmith.data.formats.fields import UnusableRowError, read_flag, wrong_type
from tunesmith.data.records import Role

MARKS = ("train", "weight", "loss_mask")


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
    found: dict[str, bool] = {}
    for name in MARKS:
        if turn.get(name) is None:
            continue
        try:
            flag = read_flag(turn, name)
        except UnusableRowError:
            raise wrong_type(f"{field}.{name}", "0 or 1 (shares of a weight are not possible)", turn[name]) from None
        if flag is not None:
            found[name] = flag
    if not found:
        return None
    if len(set(found.values())) > 1:
        said = ", ".join(f"{name} is {str(flag).lower()}" for name, flag in found.items())
        raise UnusableRowError("marks of a turn contradict each other", f"{field}: {said}")
    (mark,) = set(found.values())
    if role == "assistant":
        return mark
    if mark:
        raise UnusableRowError(
            "mark on a turn that is not an answer",
            f"{field} is of role {role}: expected no mark or 0, found {' and '.join(found)}; only answers are learnt, "
            "or all turns with train_on_prompt",
        )
    return None
