"""From the setting `template` and a tokenizer to a `ChatTemplate`."""

import difflib
import json
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from transformers import PreTrainedTokenizerBase

from tunesmith.data.chat.catalog import TemplateEntry, find_entry, find_entry_by_source, find_twin, template_names
from tunesmith.data.chat.prefixes import Ending
from tunesmith.data.chat.probe import Render, accepts_system, find_ending, find_tool_support
from tunesmith.data.chat.render import RenderingRefusedError, compile_template, render_marked, render_text
from tunesmith.data.chat.template import ChatTemplate
from tunesmith.errors import TemplateError

logger = logging.getLogger(__name__)


class TemplateSettings(Protocol):
    """The part of the data settings that chooses a template."""

    @property
    def template(self) -> str | None: ...  # noqa: D102

    @property
    def default_system(self) -> str | None: ...  # noqa: D102


def resolve_template(settings: TemplateSettings, tokenizer: PreTrainedTokenizerBase) -> ChatTemplate:
    """Return the template that a run uses.

    Args:
        settings: `template` (`auto` or nothing: the tokenizer's own; otherwise one of ours) and `default_system`.
        tokenizer: Gives special tokens, and with `auto` the template. It is not changed, see
            `ChatTemplate.apply_to_tokenizer`.

    Raises:
        TemplateError: The name is not known, the tokenizer has no template, or its template cannot say where an
            answer ends.
    """
    name = settings.template or "auto"
    if name == "auto":
        source = _own_source(tokenizer)
        entry = find_entry_by_source(source)
    else:
        source = ""
        entry = find_entry(name)
        if entry is None:
            raise TemplateError(_unknown_name(name))
    if entry is not None:
        return _from_entry(entry, tokenizer, settings.default_system)
    return _from_tokenizer(source, tokenizer, settings.default_system)


def _unknown_name(name: str) -> str:
    near = difflib.get_close_matches(name, template_names(), n=3)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"template is {name!r}, which is not known.{hint} Known: auto, {', '.join(template_names())}."


def _own_source(tokenizer: PreTrainedTokenizerBase) -> str:
    own = tokenizer.chat_template
    if isinstance(own, dict):
        own = own.get("default") or next(iter(own.values()), None)
    if not own:
        raise TemplateError(
            "template is auto, but the tokenizer has no chat template of its own (a base model?). "
            f"Name one of ours: {', '.join(template_names())}."
        )
    return str(own)


def _special_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[str, str]:
    return {name: str(token) for name, token in sorted(tokenizer.special_tokens_map.items()) if isinstance(token, str)}


def _with_default_system(source: str, default_system: str | None) -> str:
    """Put the default system message into the template itself, so that serving uses it too."""
    if default_system is None:
        return source
    text = json.dumps(default_system, ensure_ascii=False)
    return (
        "{%- if not messages or messages[0]['role'] != 'system' -%}"
        "{%- set messages = [{'role': 'system', 'content': " + text + "}] + messages -%}"
        "{%- endif -%}" + source
    )


def _renderer(source: str, special_tokens: Mapping[str, str]) -> Render:
    def render(messages: Any, tools: Any, add_generation_prompt: bool) -> str:
        return render_text(source, messages, tools, {**special_tokens, "add_generation_prompt": add_generation_prompt})

    return render


def _from_entry(entry: TemplateEntry, tokenizer: PreTrainedTokenizerBase, default_system: str | None) -> ChatTemplate:
    special_tokens = _special_tokens(tokenizer)
    marker = entry.end_marker or special_tokens.get("eos_token")
    if not marker:
        raise TemplateError(
            f"template {entry.name} ends answers with the tokenizer's end token, and this tokenizer has none. "
            "Choose a template with an end marker of its own, such as chatml."
        )
    if entry.end_marker:  # what `apply_to_tokenizer` makes it; the template's text does not use the end token
        special_tokens["eos_token"] = marker if marker in tokenizer.get_vocab() else special_tokens.get("eos_token", "")
        special_tokens = {name: text for name, text in special_tokens.items() if text}
    source = _with_default_system(entry.source, default_system)
    render = _renderer(source, special_tokens)
    ending = find_ending(render, [marker])
    return ChatTemplate(
        name=entry.name,
        source=source,
        marked_source=_with_default_system(entry.marked_source, default_system),
        method="marks",
        rewrites_history=entry.rewrites_history,
        ending=Ending(marker, ending.tail),
        special_tokens=tuple(special_tokens.items()),
        replaces_eos=entry.end_marker is not None,
        tools=find_tool_support(render),
    )


def _from_tokenizer(source: str, tokenizer: PreTrainedTokenizerBase, default_system: str | None) -> ChatTemplate:
    special_tokens = _special_tokens(tokenizer)
    twin = None if default_system == "" else find_twin(source)  # they may differ in printing an empty system message
    source = _with_default_system(source, default_system)
    compile_template(source)
    render = _renderer(source, special_tokens)
    if default_system and not accepts_system(render):
        raise TemplateError(
            "default_system is set, but the tokenizer's chat template does not take a system message. "
            "Leave default_system out, or put the text into the first question of the rows."
        )
    try:
        ending = find_ending(render, list(tokenizer.get_added_vocab()))
    except TemplateError as error:
        raise TemplateError(
            f"template is auto, but {error}. Name one of ours instead: {', '.join(template_names())}."
        ) from error
    marked_source = _with_default_system(twin.marked_source, default_system) if twin else source
    return ChatTemplate(
        name="auto",
        source=source,
        marked_source=marked_source,
        method="marks" if twin or _marks_are_whole(source, special_tokens, ending) else "prefixes",
        rewrites_history=twin is not None and twin.rewrites_history,
        ending=ending,
        special_tokens=tuple(special_tokens.items()),
        tools=find_tool_support(render),
    )


def _marks_are_whole(source: str, special_tokens: Mapping[str, str], ending: Ending) -> bool:
    """Whether foreign marks surround each answer with its end marker, and earlier answers stay as they are."""
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
