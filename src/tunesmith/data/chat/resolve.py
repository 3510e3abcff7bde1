"""From the settings about templates and a tokenizer to a `ChatTemplate`."""

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from transformers import PreTrainedTokenizerBase

from tunesmith.data.chat.agreement import find_difference
from tunesmith.data.chat.catalog import ENTRIES, TemplateEntry, find_entry, find_saved_entry, find_twin, template_names
from tunesmith.data.chat.literals import has_token, special_texts
from tunesmith.data.chat.prefixes import Ending
from tunesmith.data.chat.probe import Render, accepts_system, find_ending, find_tool_format, find_tool_support
from tunesmith.data.chat.render import RenderingRefusedError, compile_template, render_marked, render_text
from tunesmith.data.chat.samples import PLAIN_SAMPLES, TWIN_SAMPLES
from tunesmith.data.chat.saved import with_default_system, with_start_token, with_thinking
from tunesmith.data.chat.template import ChatTemplate
from tunesmith.data.chat.thinking import Thinking, find_tags
from tunesmith.data.chat.tools import resolve_tool_format
from tunesmith.data.chat.wire import Wire
from tunesmith.errors import TemplateError

logger = logging.getLogger(__name__)


_SOME_NAMES = "chatml, llama3 or qwen3"
_ALL_NAMES = "`tunesmith template list` shows all names."


class TemplateSettings(Protocol):
    """The part of the data settings that chooses a template."""

    @property
    def template(self) -> str | None: ...  # noqa: D102

    @property
    def default_system(self) -> str | None: ...  # noqa: D102

    @property
    def tool_format(self) -> str | None: ...  # noqa: D102

    @property
    def enable_thinking(self) -> bool | None: ...  # noqa: D102

    @property
    def preserve_thinking(self) -> bool: ...  # noqa: D102

    @property
    def allow_special_tokens(self) -> bool: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class TemplateChoice:
    """Settings that choose a template, for callers without a run."""

    template: str | None = "auto"
    default_system: str | None = None
    tool_format: str | None = None
    enable_thinking: bool | None = True
    preserve_thinking: bool = False
    allow_special_tokens: bool = False


def resolve_template(settings: TemplateSettings, tokenizer: PreTrainedTokenizerBase) -> ChatTemplate:
    """Return the template that a run uses.

    A name of ours stands for a model family. Where the tokenizer has a template of its own that prints the same for
    ordinary conversations, that one is taken: it is what the model was trained with, and it knows the family's tools.

    Args:
        settings: `template` (`auto` or nothing: the tokenizer's own; otherwise one of ours) and what belongs to it.
        tokenizer: Gives special tokens, and with `auto` the template. It is not changed, see
            `ChatTemplate.apply_to_tokenizer`.

    Raises:
        TemplateError: The name is not known, the tokenizer has no template, or its template cannot do what the
            settings ask for.
    """
    name = settings.template or "auto"
    if name == "auto":
        template = _resolve_own(_own_source(tokenizer), tokenizer, settings)
    else:
        entry = find_entry(name)
        if entry is None:
            raise TemplateError(_unknown_name(name))
        template = _resolve_named(entry.with_tools(_checked_format(settings.tool_format)), tokenizer, settings)
    if settings.enable_thinking is not True and not template.thinking.is_switchable:
        logger.info("enable_thinking has no effect: template %s does not know it.", template.name)
    return template


def resolve_ours(name: str, tokenizer: PreTrainedTokenizerBase) -> ChatTemplate:
    """Return the template of ours with a name, whatever the tokenizer brings.

    Raises:
        TemplateError: The name is not known, or the template needs an end token that the tokenizer does not have.
    """
    entry = find_entry(name)
    if entry is None:
        raise TemplateError(_unknown_name(name))
    return _from_entry(entry, "", tokenizer, TemplateChoice(name))


def resolve_unaided(tokenizer: PreTrainedTokenizerBase) -> ChatTemplate:
    """Return the tokenizer's own template as rendered by its own text alone, to compare another one with.

    Raises:
        TemplateError: The tokenizer has no template, or it cannot be learnt from.
    """
    return _from_tokenizer(_own_source(tokenizer), tokenizer, TemplateChoice())


def find_agreeing(own: ChatTemplate, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return the names of the templates of ours that print ordinary conversations as a tokenizer's own does."""
    names = []
    agrees: dict[Wire, bool] = {}
    for entry in ENTRIES:
        if entry.wire not in agrees:
            try:
                ours = _from_entry(entry, "", tokenizer, TemplateChoice())
                agrees[entry.wire] = find_difference(own, ours, PLAIN_SAMPLES) is None
            except TemplateError:
                agrees[entry.wire] = False
        if agrees[entry.wire]:
            names.append(entry.name)
    return names


def _checked_format(name: str | None) -> str | None:
    return None if name is None else resolve_tool_format(name).name


def _unknown_name(name: str) -> str:
    near = difflib.get_close_matches(name, template_names(), n=3)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"template is {name!r}, which is not known.{hint} {_ALL_NAMES}"


def _find_source(tokenizer: PreTrainedTokenizerBase) -> str | None:
    own = tokenizer.chat_template
    if isinstance(own, dict):
        own = own.get("default") or next(iter(own.values()), None)
    return str(own) if own else None


def _own_source(tokenizer: PreTrainedTokenizerBase) -> str:
    own = _find_source(tokenizer)
    if own is None:
        raise TemplateError(
            "template is auto, but the tokenizer has no chat template of its own (a base model?). "
            f"Name one of ours, such as {_SOME_NAMES}. {_ALL_NAMES}"
        )
    return own


def _resolve_own(source: str, tokenizer: PreTrainedTokenizerBase, settings: TemplateSettings) -> ChatTemplate:
    saved = find_saved_entry(source)
    if saved is not None:
        entry, header = saved
        return _from_entry(entry.with_tools(_checked_format(settings.tool_format)), header, tokenizer, settings)
    if settings.tool_format is not None:
        raise TemplateError(
            f"tool_format is {settings.tool_format!r}, but the tokenizer's own template prints tools its own way. "
            "Leave tool_format out, or name a template of ours too."
        )
    twin = None if settings.default_system == "" else find_twin(source)  # an empty system message may be printed
    return _from_tokenizer(source, tokenizer, settings, twin)


def _resolve_named(
    entry: TemplateEntry, tokenizer: PreTrainedTokenizerBase, settings: TemplateSettings
) -> ChatTemplate:
    ours = _from_entry(entry, "", tokenizer, settings)
    source = _find_source(tokenizer)
    if source is None or entry.is_wire_only or find_saved_entry(source) is not None:
        return ours
    try:
        own = _from_tokenizer(source, tokenizer, TemplateChoice())
    except TemplateError as error:
        _say_that_ours_is_used(entry, str(error))
        return ours
    compared = _from_entry(entry, "", tokenizer, TemplateChoice())
    difference = find_difference(compared, own, PLAIN_SAMPLES)
    if difference is not None:
        printed = f"{difference.right[:30]!r} instead of {difference.left[:30]!r}"
        _say_that_ours_is_used(entry, f"for {difference.sample!r} it prints {printed}")
        return ours
    if own.tools != compared.tools or not _can_do(own, source, settings):
        return ours  # the same text for ordinary conversations, and more that it can print
    is_twin = settings.default_system != "" and find_difference(compared, own, TWIN_SAMPLES) is None
    taken = _from_tokenizer(source, tokenizer, settings, entry if is_twin else None)
    return replace(taken, name=entry.name, replaces_eos=ours.replaces_eos, stops=ours.stops)


def _can_do(own: ChatTemplate, source: str, settings: TemplateSettings) -> bool:
    """Whether a tokenizer's own template knows the switches that the settings use."""
    if settings.enable_thinking is not True and not own.thinking.is_switchable:
        return False
    return not settings.preserve_thinking or "preserve_thinking" in source or "clear_thinking" in source


def _say_that_ours_is_used(entry: TemplateEntry, reason: str) -> None:
    logger.warning(
        "template %s is used as it comes with this program: the tokenizer's own template differs (%s). "
        "Set template: auto to use the tokenizer's, and see `tunesmith template check`.",
        entry.name,
        reason,
    )


def _special_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[str, str]:
    return {name: str(token) for name, token in sorted(tokenizer.special_tokens_map.items()) if isinstance(token, str)}


def _literal_tokens(tokenizer: PreTrainedTokenizerBase, settings: TemplateSettings) -> tuple[str, ...]:
    if settings.allow_special_tokens or tokenizer.split_special_tokens:
        return ()
    return special_texts(tokenizer)


def _renderer(source: str, special_tokens: Mapping[str, str]) -> Render:
    def render(messages: Any, tools: Any, add_generation_prompt: bool) -> str:
        return render_text(source, messages, tools, {**special_tokens, "add_generation_prompt": add_generation_prompt})

    return render


def _lacks_start_token(wire: Wire, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the tokenizer begins every text with its start token and a wire does not print it, by name or text."""
    start = tokenizer.bos_token_id
    if start is None or tokenizer.encode("", add_special_tokens=True)[:1] != [start]:
        return False
    beginnings = (wire.prefix,) if wire.prefix else (wire.system, wire.user)
    return not all(text.startswith(("{bos}", str(tokenizer.bos_token))) for text in beginnings)


def _from_entry(
    entry: TemplateEntry, header: str, tokenizer: PreTrainedTokenizerBase, settings: TemplateSettings
) -> ChatTemplate:
    special_tokens = _special_tokens(tokenizer)
    marker = entry.end_marker or special_tokens.get("eos_token")
    if not marker:
        raise TemplateError(
            f"template {entry.name} ends answers with the tokenizer's end token, and this tokenizer has none. "
            "Choose a template with an end marker of its own, such as chatml."
        )
    if entry.wire.becomes_eos and has_token(tokenizer, marker):
        # What `apply_to_tokenizer` makes it; the template's text does not use the end token.
        special_tokens["eos_token"] = marker
    thought = entry.wire.thought
    thinking = Thinking(settings.enable_thinking, settings.preserve_thinking)
    if thought is not None:
        thinking = replace(thinking, tags=thought.tags, is_switchable=True, nothing=thought.nothing)

    def dressed(source: str) -> str:
        if _lacks_start_token(entry.wire, tokenizer):
            source = with_start_token(source)
        text = with_default_system(with_thinking(header + source, thinking), settings.default_system)
        return text if text.startswith(entry.signature) else entry.signature + text

    source = dressed(entry.source)
    render = _renderer(source, special_tokens)
    ending = find_ending(render, [marker], marker, thinking.tags)
    return ChatTemplate(
        name=entry.name,
        source=source,
        marked_source=dressed(entry.marked_source),
        method="marks",
        rewrites_history=entry.rewrites_history
        and not (settings.preserve_thinking and entry.wire.closed_history is None),
        ending=Ending(marker, ending.tail),
        special_tokens=tuple(special_tokens.items()),
        replaces_eos=entry.wire.becomes_eos,
        tools=find_tool_support(render),
        tool_format=entry.wire.tools,
        thinking=thinking,
        literal_tokens=_literal_tokens(tokenizer, settings),
        stops=entry.wire.stops,
    )


def _from_tokenizer(
    source: str, tokenizer: PreTrainedTokenizerBase, settings: TemplateSettings, twin: TemplateEntry | None = None
) -> ChatTemplate:
    special_tokens = _special_tokens(tokenizer)
    thinking = Thinking(
        settings.enable_thinking, settings.preserve_thinking, find_tags(source), "enable_thinking" in source
    )

    def dressed(text: str) -> str:
        return with_default_system(with_thinking(text, thinking), settings.default_system)

    original, source = source, dressed(source)
    compile_template(source)
    render = _renderer(source, special_tokens)
    if settings.default_system and not accepts_system(render):
        raise TemplateError(
            "default_system is set, but the tokenizer's chat template does not take a system message. "
            "Leave default_system out, or put the text into the first question of the rows."
        )
    try:
        ending = find_ending(render, list(tokenizer.get_added_vocab()), special_tokens.get("eos_token"), thinking.tags)
    except TemplateError as error:
        raise TemplateError(
            f"template is auto, but {error}. Name one of ours instead, such as {_SOME_NAMES}. {_ALL_NAMES}"
        ) from error
    is_marked = twin is not None or _marks_are_whole(original, special_tokens, ending)
    return ChatTemplate(
        name="auto",
        source=source,
        marked_source=dressed(twin.marked_source) if twin else source,
        method="marks" if is_marked else "prefixes",
        rewrites_history=twin is not None and twin.rewrites_history and not thinking.preserved,
        ending=ending,
        special_tokens=tuple(special_tokens.items()),
        tools=find_tool_support(render),
        tool_format=find_tool_format(render, ending),
        thinking=thinking,
        literal_tokens=_literal_tokens(tokenizer, settings),
    )


def _marks_are_whole(source: str, special_tokens: Mapping[str, str], ending: Ending) -> bool:
    """Whether foreign marks surround each answer with its end marker, and earlier answers stay as they are."""
    if "generation" not in source or not ending.is_printed:
        return False
    turns = [("user", "one"), ("assistant", "<think>\ntwo\n</think>\n\nthree"), ("user", "four"), ("assistant", "five")]
    messages = [{"role": role, "content": content} for role, content in turns]
    variables = {**special_tokens, "add_generation_prompt": False}
    try:
        parts = render_marked(source, messages, None, variables)
        prompts = [
            render_text(source, messages[:place], None, {**variables, "add_generation_prompt": True})
            for place in (1, 3)
        ]
    except RenderingRefusedError:
        return False
    if len(parts) != 5 or not all(parts[place].endswith(ending.marker) for place in (1, 3)):
        return False
    whole = "".join(parts)
    return prompts == [parts[0], "".join(parts[:3])] and "two" in whole and parts[4] == ending.tail
