"""Environment variables `TUNESMITH_<KEY>` as settings."""

from collections.abc import Mapping

from tunesmith.config.coercion import PlainText
from tunesmith.config.entries import Entry
from tunesmith.config.llamafactory import known_keys
from tunesmith.config.run_config import Origin
from tunesmith.config.settings import all_settings
from tunesmith.config.suggestions import render_suggestion
from tunesmith.errors import ConfigProblem

PREFIX = "TUNESMITH_"
RESERVED = frozenset({"TUNESMITH_ASSETS", "TUNESMITH_MODEL_FILE", "TUNESMITH_REQUIRE_MODEL"})
"""Variables of this product that are not settings of a run."""


def read_environment(environ: Mapping[str, str]) -> tuple[list[Entry], list[ConfigProblem]]:
    """Return the settings in the environment, and a problem for each variable that names none.

    A variable that is empty counts as not set.
    """
    entries: list[Entry] = []
    problems: list[ConfigProblem] = []
    for name, text in sorted(environ.items()):
        if not name.startswith(PREFIX) or name in RESERVED or not text:
            continue
        key = name.removeprefix(PREFIX).lower()
        if key in all_settings() or key in known_keys():
            entries.append(Entry(key, PlainText(text), Origin("environment", name)))
        else:
            hint = render_suggestion(name, [f"{PREFIX}{known.upper()}" for known in all_settings()])
            problems.append(ConfigProblem(name, f"there is no setting `{key}`.{hint} Unset or rename the variable."))
    return entries, problems
