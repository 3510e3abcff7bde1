"""The nearest known word to one that is not known."""

from collections.abc import Iterable
from difflib import get_close_matches


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
