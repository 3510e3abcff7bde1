"""Where rows come from: the catalogue of data sets and readers of files, here and elsewhere."""

from tunesmith.data.sources.catalog import Catalog, load_catalog
from tunesmith.data.sources.dataset_spec import Columns, DatasetSpec, Tags
from tunesmith.data.sources.rows import RawRow, read_rows

__all__ = ["Catalog", "Columns", "DatasetSpec", "RawRow", "Tags", "load_catalog", "read_rows"]
