"""Random conversations and the settings that the chat tests share."""

from functools import cache

from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from tests.tiny.tokenizers import byte_level_tokenizer, metaspace_tokenizer
from tunesmith.data.chat import ChatTemplate, TemplateChoice, resolve_template
from tunesmith.data.chat.catalog import ENTRIES, find_entry
from tunesmith.data.records import Conversation, Message

NAMES = [entry.name for entry in ENTRIES]
DISTINCT_NAMES = list({entry.wire: entry.name for entry in reversed(ENTRIES)}.values())
"""One name for each wire text: many families share one."""

MARKERS = tuple(sorted({entry.end_marker.strip() for entry in ENTRIES if entry.end_marker}))
KINDS = {"byte_level": byte_level_tokenizer, "metaspace": metaspace_tokenizer}

PARTS = [
    "Paris",
    " ",
    "\n",
    "  x",
    "1. ",
    "你好",
    "🙂",
    "<|im_end|>",
    "</s>",
    "<end_of_turn>",
    "<s>",
    "user\n",
    "<",
    "|>",
    "é",
]
texts = st.lists(st.sampled_from(PARTS), max_size=5).map("".join)
words = st.lists(st.sampled_from(["one", "two", "three", "4", "你好"]), min_size=1, max_size=6).map(" ".join)


def settings(template: str | None = "auto", default_system: str | None = None, **others: object) -> TemplateChoice:
    return TemplateChoice(template, default_system, **others)  # type: ignore[arg-type]


def tokenizer_of(kind: str, *, with_markers: bool = True) -> PreTrainedTokenizerFast:
    """A toy tokenizer that has the end markers of our templates as tokens, as the families' own tokenizers do."""
    tokenizer = KINDS[kind]()
    if with_markers:
        tokenizer.add_special_tokens({"extra_special_tokens": list(MARKERS)})
    return tokenizer


@cache
def shared_tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """That of `tokenizer_of`, for tests that leave it as it is."""
    return tokenizer_of(kind)


def template_of(
    name: str, tokenizer: PreTrainedTokenizerFast, default_system: str | None = None, **others: object
) -> ChatTemplate:
    return resolve_template(settings(name, default_system, **others), tokenizer)


def answer_text(template: ChatTemplate, content: str) -> str:
    """What is learnt of an answer without reasoning, from the family's wire text and without rendering."""
    entry = find_entry(template.name)
    assert entry is not None
    wire = entry.wire
    nothing, words = (wire.thought.nothing, content.lstrip("\n")) if wire.thought else ("", content)
    return f"{wire.lead}{nothing}{words}{template.ending.marker}"


def talk(*contents: str, system: str | None = None) -> Conversation:
    """User and assistant in turn."""
    turns = [Message("user" if place % 2 == 0 else "assistant", text) for place, text in enumerate(contents)]
    return Conversation((*([Message("system", system)] if system else []), *turns))


def conversations(content: st.SearchStrategy[str]) -> st.SearchStrategy[Conversation]:
    pairs = st.lists(st.tuples(content, content), min_size=1, max_size=3)
    system = st.none() | words
    return st.builds(
        lambda turns, text: talk(*(part for pair in turns for part in pair), system=text),
        pairs,
        system,
    )


def as_dicts(conversation: Conversation) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in conversation.messages]
