"""What somebody wrote for one key, and where."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tunesmith.config.run_config import Origin


@dataclass(frozen=True, slots=True)
class Entry:
    """One written value, not yet checked."""

    key: str
    """Flat key; `key.part` sets one part of a mapping."""

    value: object
    origin: Origin
    places: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """Where the inner parts of a nested value stand, by their path below the key."""
