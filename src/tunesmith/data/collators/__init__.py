"""Rows to batches: `flat` lays a micro-batch end to end, `padded` gives each row its own line.

`build_collator` picks by layout. Only `padding.py` pads.
"""

from tunesmith.data.collators.layouts import Collator, build_collator

__all__ = ["Collator", "build_collator"]
