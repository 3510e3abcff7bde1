"""A light look at data set entries: their keys, nested ones too. Rows are looked at when they are read."""

from collections.abc import Iterator, Mapping

from tunesmith.config.suggestions import render_suggestion

ENTRY_KEYS = (
    "hf_hub_url",
    "ms_hub_url",
    "om_hub_url",
    "script_url",
    "cloud_file_name",
    "file_name",
    "formatting",
    "ranking",
    "subset",
    "split",
    "folder",
    "num_samples",
    "columns",
    "tags",
)
COLUMN_KEYS = (
    "prompt",
    "query",
    "response",
    "history",
    "messages",
    "system",
    "tools",
    "images",
    "videos",
    "audios",
    "chosen",
    "rejected",
    "kto_tag",
    "text",
)
TAG_KEYS = (
    "role_tag",
    "content_tag",
    "user_tag",
    "assistant_tag",
    "observation_tag",
    "function_tag",
    "system_tag",
)
_NESTED = {"columns": COLUMN_KEYS, "tags": TAG_KEYS}


def check_entries(catalogue: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the place and a message for every key that means nothing.

    Args:
        catalogue: Data set entries by name, as in `dataset_info.json`.
    """
    for name, entry in catalogue.items():
        if not isinstance(entry, Mapping):
            yield name, "has to be a mapping such as {file_name: rows.jsonl}."
            continue
        yield from _unknown(name, entry, ENTRY_KEYS)
        for part, known in _NESTED.items():
            inner = entry.get(part)
            if isinstance(inner, Mapping):
                yield from _unknown(f"{name}.{part}", inner, known)
            elif inner is not None:
                yield f"{name}.{part}", f"has to be a mapping with keys from {', '.join(known)}."


def _unknown(place: str, entry: Mapping[str, object], known: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for key in entry:
        if key not in known:
            hint = render_suggestion(key, known) or f" Known are {', '.join(known)}."
            yield f"{place}.{key}", f"is not a key of a data set.{hint}"
