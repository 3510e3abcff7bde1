"""The chat templates that come with the program: one file in `templates/` and one line here each."""

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

_EOS = None
"""End marker of templates that close an answer with whatever end token the tokenizer has."""

_MARKS = re.compile(r"\{%-\s*(?:end)?generation\s*-%\}")


@dataclass(frozen=True, slots=True)
class TemplateEntry:
    """What has to be known of one of our templates besides its text."""

    name: str
    end_marker: str | None
    """Text that closes an answer; nothing where it is the tokenizer's end token."""

    aliases: tuple[str, ...] = ()
    rewrites_history: bool = False
    """Whether earlier answers are printed differently from the last one, so that each answer needs a row of its own."""

    twins: tuple[str, ...] = ()
    """SHA-256 of templates of published models that print the same for every conversation (with no empty system
    message). Their rows are rendered with our marks in one go, in a half (SmolLM2) to a quarter (Qwen3) of the time
    that prefix by prefix takes. The tokenizer keeps its own text."""

    @property
    def marked_source(self) -> str:
        """The template with `{% generation %}` marks around answers and their end markers."""
        return _read_template(self.name)

    @property
    def source(self) -> str:
        """The template without marks, for programs that do not know them. All marks trim the space on both sides."""
        return _MARKS.sub("", self.marked_source)


ENTRIES = (
    TemplateEntry("alpaca", _EOS),
    TemplateEntry("chatml", "<|im_end|>"),
    TemplateEntry("deepseek3", _EOS),
    TemplateEntry("default", _EOS),
    TemplateEntry("gemma", "<end_of_turn>"),
    TemplateEntry("llama2", _EOS),
    TemplateEntry("llama3", "<|eot_id|>"),
    TemplateEntry("mistral", _EOS),
    TemplateEntry("phi", "<|end|>"),
    TemplateEntry("qwen", "<|im_end|>", aliases=("qwen2", "qwen2_5")),
    TemplateEntry(
        "qwen3",
        "<|im_end|>",
        rewrites_history=True,
        twins=("87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5",),
    ),
    TemplateEntry(
        "smollm2",
        "<|im_end|>",
        twins=("872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",),
    ),
    TemplateEntry("vicuna", _EOS),
)

_BY_NAME = {name: entry for entry in ENTRIES for name in (entry.name, *entry.aliases)}


@lru_cache
def _read_template(name: str) -> str:
    text = files("tunesmith.data.chat").joinpath("templates", f"{name}.jinja").read_text(encoding="utf-8")
    return text.removesuffix("\n")


def template_names() -> tuple[str, ...]:
    """Return every name that `template` accepts besides `auto`, in alphabetical order."""
    return tuple(sorted(_BY_NAME))


def find_entry(name: str) -> TemplateEntry | None:
    """Return the entry of a name or alias, or nothing."""
    return _BY_NAME.get(name)


def find_entry_by_source(source: str) -> TemplateEntry | None:
    """Return the entry whose text a tokenizer carries, as after a run that used one of ours; or nothing."""
    return next((entry for entry in ENTRIES if entry.source == source), None)


def find_twin(source: str) -> TemplateEntry | None:
    """Return the entry that prints the same as the template of a published model, or nothing."""
    digest = hashlib.sha256(source.encode()).hexdigest()
    return next((entry for entry in ENTRIES if digest in entry.twins), None)
