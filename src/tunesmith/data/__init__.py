"""From files to batches: every row is accounted for, and what the model sees is what can be seen.

In the order in which a row passes through:

    sources/        the catalogue and the files               -> raw rows
    formats/        one file per shape of rows                -> records
    chat/           the template of the conversation          -> text
    tokenization/   text                                      -> ids and what is learnt of them
    loading/        cache, data sets and orders of rows       -> examples
    packing.py      which rows share a packed row
    collators/      examples                                  -> batches
    pipeline.py     the order of all this: `prepare_data`
    account.py      what became of each row

Everything here is loaded when it is first used.
"""

from typing import TYPE_CHECKING, Any

__all__ = ["DataReport", "PreparedData", "build_collator", "prepare_data"]

if TYPE_CHECKING:
    from tunesmith.data.account import DataReport
    from tunesmith.data.collators import build_collator
    from tunesmith.data.pipeline import prepare_data
    from tunesmith.data.prepared import PreparedData

_HOMES = {
    "DataReport": "account",
    "PreparedData": "prepared",
    "build_collator": "collators",
    "prepare_data": "pipeline",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"tunesmith.data.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tunesmith.data' has no attribute {name!r}")
