"""Raw rows to records: one file per format, listed in `registry`."""

from tunesmith.data.formats.registry import FORMATS, build_format

__all__ = ["FORMATS", "build_format"]
