"""Where rows come from: the catalogue of data sets and readers of files, here, in object stores and on hubs."""

from tunesmith.data.sources.catalog import Catalog, load_catalog
from tunesmith.data.sources.dataset_spec import Columns, DatasetSpec, Tags
from tunesmith.data.sources.hubs import HubAccess
from tunesmith.data.sources.rows import RawRow, peek_rows, read_rows

__all__ = [
    "Catalog",
    "Columns",
    "DatasetSpec",
    "HubAccess",
    "RawRow",
    "Tags",
    "load_catalog",
    "peek_rows",
    "read_rows",
]
