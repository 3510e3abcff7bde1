"""The chat templates that come with the program, by name: every name that LLaMA-Factory has, and a few more."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tunesmith.data.chat.compose import compose_template
from tunesmith.data.chat.families import WIRES
from tunesmith.data.chat.wire import Wire

_MARKS = re.compile(r"[ \t]*\{%-\s*(?:end)?generation\s*-%\}\n?")
_SIGNATURE = re.compile(r"\{#- tunesmith template (\S+), tools (\S+) -#\}")

_ALIASES: Mapping[str, tuple[str, ...]] = {"qwen": ("qwen2", "qwen2_5")}

_OURS = {"alpaca", "chatml", "chatml_de", "default", "empty", "ernie_vl", "fewshot", "vicuna"}
"""Names that stand for a wire text and not for a model family: a tokenizer's own template never takes their place."""

_TWINS: Mapping[str, tuple[str, ...]] = {
    "qwen3": ("87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5",),
    "smollm2": ("872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",),
}
"""SHA-256 of templates of published models that print the same for every conversation (with no empty system
message). Their rows are rendered with our marks in one go, in a half (SmolLM2) to a quarter (Qwen3) of the time that
prefix by prefix takes. The tokenizer keeps its own text."""


@dataclass(frozen=True, slots=True)
class TemplateEntry:
    """One of our templates."""

    name: str
    wire: Wire
    aliases: tuple[str, ...] = ()
    is_wire_only: bool = False
    """Whether the name stands for this wire text, whatever template a tokenizer carries."""

    twins: tuple[str, ...] = ()

    @property
    def end_marker(self) -> str | None:
        """Text that closes an answer; nothing where it is the tokenizer's end token."""
        return self.wire.marker

    @property
    def rewrites_history(self) -> bool:
        """Whether earlier answers are printed differently from the last, so that each needs a row of its own."""
        return self.wire.thought is not None or self.wire.closed_history is not None

    @property
    def marked_source(self) -> str:
        """The template with `{% generation %}` marks around answers and their end markers."""
        return _compose(self.wire)

    @property
    def source(self) -> str:
        """The template without marks, for programs that do not know them. All marks trim the space on both sides."""
        return _MARKS.sub("", self.marked_source)

    @property
    def signature(self) -> str:
        """A comment that stands at the start of saved templates, by which they are known again."""
        return f"{{#- tunesmith template {self.name}, tools {self.wire.tools} -#}}"

    def with_tools(self, tool_format: str | None) -> "TemplateEntry":
        """Return the same template with another tool format."""
        if tool_format is None or tool_format == self.wire.tools:
            return self
        wire = self.wire.but(tools=tool_format, call_opening="")
        return TemplateEntry(self.name, wire, self.aliases, is_wire_only=True)


ENTRIES = tuple(
    TemplateEntry(name, wire, _ALIASES.get(name, ()), name in _OURS, _TWINS.get(name, ()))
    for name, wire in sorted(WIRES.items())
)

_BY_NAME = {name: entry for entry in ENTRIES for name in (entry.name, *entry.aliases)}


@lru_cache(maxsize=256)
def _compose(wire: Wire) -> str:
    return compose_template(wire)


def template_names() -> tuple[str, ...]:
    """Return every name that `template` accepts besides `auto`, in alphabetical order."""
    return tuple(sorted(_BY_NAME))


def find_entry(name: str) -> TemplateEntry | None:
    """Return the entry of a name or alias, or nothing."""
    return _BY_NAME.get(name)


def find_saved_entry(source: str) -> tuple[TemplateEntry, str] | None:
    """Return the entry whose text a tokenizer carries, as after a run that used one of ours, or nothing.

    Returns:
        The entry, and what stands before its text: settings of the run that saved it.
    """
    signature = _SIGNATURE.match(source)
    entry = find_entry(signature[1]) if signature else None
    if signature is None or entry is None:
        return None
    entry = entry.with_tools(signature[2])
    if not source.endswith(entry.source):
        return None  # of another version, or changed by hand
    return entry, source[: len(source) - len(entry.source)]


def find_twin(source: str) -> TemplateEntry | None:
    """Return the entry that prints the same as the template of a published model, or nothing."""
    digest = hashlib.sha256(source.encode()).hexdigest()
    return next((entry for entry in ENTRIES if digest in entry.twins), None)
