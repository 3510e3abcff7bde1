"""Specs for the format tests."""

from tunesmith.data.sources.dataset_spec import DEFAULT_COLUMNS, DEFAULT_TAGS, Columns, DatasetSpec


def spec_of(formatting, *, columns=None, tags=None, files=(), **rest):
    return DatasetSpec(
        name="toy",
        files=files,
        formatting=formatting,
        columns=Columns(**columns) if columns else DEFAULT_COLUMNS[formatting],
        tags=tags or DEFAULT_TAGS[formatting],
        **rest,
    )
