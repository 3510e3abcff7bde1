"""What each setting is for, read from the text under its field: the one description of an option there is."""

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

from tunesmith.config.settings import GROUPS


@cache
def all_descriptions() -> Mapping[str, str]:
    """Return the description of every setting by key, as Markdown with one line per paragraph."""
    found: dict[str, str] = {}
    for cls in GROUPS.values():
        for part in cls.__mro__[:-1]:
            found.update(_read_class(part))
    return found


def first_sentence(description: str) -> str:
    """Return the first paragraph of a description, which says what the setting does."""
    return description.partition("\n\n")[0]


def _read_class(cls: type) -> dict[str, str]:
    source = Path(str(sys.modules[cls.__module__].__file__)).read_text(encoding="utf-8")
    body = next(
        node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    )
    found: dict[str, str] = {}
    for field, text in pairwise(body):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            paragraphs = inspect.cleandoc(str(text.value.value)).split("\n\n")
            found[field.target.id] = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return found
