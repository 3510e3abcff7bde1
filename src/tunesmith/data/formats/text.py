"""Plain text rows for continued pre-training: one column, one document."""

from collections.abc import Mapping
from typing import Any

from tunesmith.data.formats.fields import FillText, UnusableRowError, describe_missing, read_required_text
from tunesmith.data.records import Document
from tunesmith.data.sources.dataset_spec import DatasetSpec


def convert_text(values: Mapping[str, Any], spec: DatasetSpec, fill: FillText) -> Document:
    """Return the document of a row."""
    text = read_required_text(values, spec.columns.prompt)
    if not text.strip():
        raise UnusableRowError("no text", describe_missing(values, spec.columns.prompt))
    return Document(fill(text))
