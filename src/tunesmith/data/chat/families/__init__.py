"""The wire texts of all families, by the names that LLaMA-Factory gives them."""

from collections.abc import Mapping

from tunesmith.data.chat.families import chatml, headers, words
from tunesmith.data.chat.wire import Wire

WIRES: Mapping[str, Wire] = {**chatml.WIRES, **headers.WIRES, **words.WIRES}
