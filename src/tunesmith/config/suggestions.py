"""The nearest known word to one that is not known, and the path like one that is not there."""

import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from unicodedata import normalize

_MOST_COMPARED = 5000
"""Names of a folder that are compared letter by letter: of more it would take longer than anyone waits for an error."""


def find_nearest(word: str, known: Iterable[str], count: int = 1) -> list[str]:
    """Return up to `count` known words that look like `word`, the nearest first; none when nothing is near."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    written = word.lower().replace("-", "_")
    beginning = sorted((other for other in by_lower if other == written or other.startswith(f"{written}_")), key=len)
    near = beginning[:count] or get_close_matches(written, list(by_lower), n=count, cutoff=0.6)
    if not near:  # parts of long names in another order, as in `batch_size_per_device`
        wanted = set(written.split("_"))
        shared = sorted(
            ((-len(wanted & set(other.split("_"))), other) for other in by_lower),
        )
        near = [other for score, other in shared[:count] if -score >= max(2, len(wanted) - 1)]
    return [by_lower[match] for match in near]


def render_suggestion(word: str, known: Iterable[str], count: int = 1) -> str:
    """Return ` Did you mean ...?` with a space in front, or nothing when no known word is near."""
    near = find_nearest(word, known, count)
    return f" Did you mean {' or '.join(f'`{match}`' for match in near)}?" if near else ""


def find_similar_path(path: str | Path) -> Path | None:
    """Return the path that is there and reads like one that is not: with other capitals, or a letter or two off.

    Whole parts are compared from the left; `None` where one of them looks like nothing that is there.
    """
    wanted = Path(path).expanduser()
    found = Path(wanted.anchor)
    for part in wanted.parts[bool(wanted.anchor) :]:
        there = found / part
        if not there.exists():
            similar = _find_similar_name(part, found)
            if similar is None:
                return None
            there = found / similar
        found = there
    return found


def _find_similar_name(name: str, folder: Path) -> str | None:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return None
    by_look = {_look(each): each for each in names}
    look = _look(name)
    if look in by_look or len(names) > _MOST_COMPARED:
        return by_look.get(look)
    near = get_close_matches(look, by_look, n=1, cutoff=0.8)
    return by_look[near[0]] if near else None


def _look(name: str) -> str:
    """Return a name without what people do not see or hear: capitals, and which way an accent is written."""
    return normalize("NFC", name).casefold()


def render_similar_path(path: str | Path) -> str:
    """Return ` Did you mean '...'?` with a space in front, or nothing when no path like it is there."""
    similar = find_similar_path(path)
    return "" if similar is None else f" Did you mean '{similar}'?"
