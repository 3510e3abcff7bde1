"""transformers reads a GGUF file twice and builds its table of tensor names once per module; remember both.

Seen with transformers 5.24 (modeling_gguf_pytorch_utils: get_gguf_hf_weights_map is recursive and asks for the table in
every call): 20 of 32 seconds for a model of 135M weights. Results are the same objects; drop this file when loading
without it is as fast.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from tunesmith.models.gguf.metadata import open_reader
from tunesmith.runtime.optional import require


@contextmanager
def remembered_lookups(path: Path) -> Iterator[None]:
    """Within this context the gguf package opens `path` once and builds each table of tensor names once."""
    gguf: Any = require("gguf", "gguf", "read GGUF files")
    build_table, reader_class = gguf.get_tensor_name_map, gguf.GGUFReader

    def reopen(name: Any, *args: Any, **kwargs: Any) -> Any:
        same = Path(name).resolve() == path.resolve() and not args and not kwargs
        return open_reader(path) if same else reader_class(name, *args, **kwargs)

    open_reader(path)  # before the swap: it must find the real class
    gguf.get_tensor_name_map, gguf.GGUFReader = lru_cache(maxsize=4)(build_table), reopen
    try:
        yield
    finally:
        gguf.get_tensor_name_map, gguf.GGUFReader = build_table, reader_class
