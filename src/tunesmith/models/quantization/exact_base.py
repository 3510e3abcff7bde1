"""Which 16-bit model a compressed one was made from: adapters are merged into that one."""

import re
from pathlib import Path

import yaml

_CARD = "README.md"
_MARKS = re.compile(
    r"[-_.](gptq|awq|aqlm|hqq|bnb|nf4|fp4|fp8|mxfp4|nvfp4|quantized|w\d+a\d+|[48]bits?|int[48]|g\d+|dynamic)(?=$|[-_.])",
    re.IGNORECASE,
)


def find_exact_base(name: str, folder: Path | None) -> str | None:
    """Return the model that a compressed one was made from, as far as its card or its name tells.

    Args:
        name: Of the compressed model: a hub id or a folder.
        folder: Where it lies on this disk, if it does.

    Example:
        `org/Qwen3-8B-GPTQ-Int4` -> `org/Qwen3-8B`, if no card says something else.
    """
    from_card = _read_card(folder / _CARD) if folder is not None and folder.is_dir() else None
    if from_card is not None:
        return from_card
    owner, slash, last = name.rstrip("/").rpartition("/")
    plain = _MARKS.sub("", last)
    return f"{owner}{slash}{plain}" if plain and plain != last else None


def _read_card(card: Path) -> str | None:
    """Return `base_model` of the settings between dashes at the head of a model card."""
    if not card.is_file():
        return None
    match = re.match(r"---\s*\n(.*?)\n---", card.read_text(encoding="utf-8", errors="replace"), re.DOTALL)
    if match is None:
        return None
    try:
        settings = yaml.safe_load(match[1])
    except yaml.YAMLError:
        return None
    base = settings.get("base_model") if isinstance(settings, dict) else None
    if isinstance(base, list):
        base = base[0] if base else None
    return base if isinstance(base, str) and base else None
