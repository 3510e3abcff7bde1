"""Jinja in a sandbox, with `{% generation %}` marks that cannot be confused with the text between them.

The environment has what `transformers` gives to chat templates (trimmed blocks, `tojson` that leaves text readable,
`raise_exception`, `strftime_now`, loop controls), so that a template prints here what it prints when served.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from tunesmith.errors import TemplateError


class RenderingRefusedError(TemplateError):
    """This conversation cannot be rendered by this template; others may be. The row is dropped and counted."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        """Short and fixed, to be counted."""
        self.detail = detail
        super().__init__(f"{reason}: {detail}" if detail else reason)


class _Mark(str):
    """An empty text that stays the same object on its way through the template, so that it is known by identity."""

    __slots__ = ()

    def __str__(self) -> str:
        return self


_BEGIN, _END = _Mark(), _Mark()


class _GenerationMarks(Extension):
    """Turns `{% generation %}` and `{% endgeneration %}` into marks in the stream of printed pieces.

    Marks inside a macro, a `{% set %}` block or a filter block are lost, since those join their pieces into one text;
    a template that does so is found when it is resolved and is rendered prefix by prefix instead.
    """

    tags = {"generation"}  # noqa: RUF012  (the name and type that jinja asks for)
    begin = _BEGIN
    end = _END

    def parse(self, parser: Parser) -> list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        before = nodes.Output([self.attr("begin")]).set_lineno(line)
        after = nodes.Output([self.attr("end")]).set_lineno(line)
        return [before, *body, after]


class _GuardedNamespace(Namespace):
    """Jinja's namespace without access to names of the interpreter."""

    def __init__(*arguments: Any, **attributes: Any) -> None:
        instance, *mappings = arguments
        merged = dict(*mappings, **attributes)
        for name in merged:
            _check_attribute_name(name)
        Namespace.__init__(instance, merged)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute_name(name)
        super().__setitem__(name, value)


def _check_attribute_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a template may not set {name!r}: names cannot start with '_'")


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise jinja2.exceptions.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)  # noqa: DTZ005  (templates print the local date)


_DICT_ATTRIBUTES = frozenset(dir(dict))
_LOOP_ATTRIBUTES = frozenset({"index", "index0", "first", "last", "previtem", "nextitem", "length"})


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with short ways for what templates do most: fields of messages, and the place in a loop.

    Jinja asks of every attribute whether it is safe, which takes longer than the rest of a rendering. Fields of a plain
    dict, and the public attributes of Jinja's own loop variable, always are.
    """

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return `obj.attribute`."""
        if type(obj) is dict:
            if attribute in obj and attribute not in _DICT_ATTRIBUTES:
                return obj[attribute]
        elif type(obj) is LoopContext and attribute in _LOOP_ATTRIBUTES:
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return `obj[argument]`."""
        if type(obj) is dict and argument.__class__ is str and argument in obj:
            return obj[argument]
        return super().getitem(obj, argument)


@lru_cache(maxsize=1)
def _environment() -> _Sandbox:
    environment = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationMarks, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    environment.globals["namespace"] = _GuardedNamespace
    return environment


@lru_cache(maxsize=512)
def compile_template(source: str) -> jinja2.Template:
    """Compile a chat template; the result is kept, because templates are looked up by their text for every row.

    Raises:
        TemplateError: The text is not valid Jinja.
    """
    try:
        return _environment().from_string(source)
    except jinja2.exceptions.TemplateSyntaxError as error:
        raise TemplateError(f"the chat template is not valid Jinja (line {error.lineno}): {error.message}") from error


_ROW_ERRORS = (
    jinja2.exceptions.TemplateError,
    TypeError,
    KeyError,
    ValueError,
    AttributeError,
    IndexError,
    ArithmeticError,
    RecursionError,
)
"""What a template may raise on a row. It is a program over the row: its errors say that this row does not suit it."""


def _stream(
    source: str, messages: Sequence[Mapping[str, Any]], tools: list[Any] | None, variables: Mapping[str, Any]
) -> Iterator[str]:
    """Return an iterator over what the template prints, piece by piece."""
    template = compile_template(source)
    environment = _environment()
    names = {**environment.globals, "messages": messages, "tools": tools, "documents": None, **variables}
    # `Template.new_context` merges chains of mappings anew for every rendering.
    pieces: Iterator[str] = template.root_render_func(Context(environment, names, None, template.blocks))
    return pieces


def _refusal(error: Exception) -> RenderingRefusedError:
    return RenderingRefusedError("the chat template refuses the row", str(error))


def render_text(
    source: str, messages: Sequence[Mapping[str, Any]], tools: list[Any] | None, variables: Mapping[str, Any]
) -> str:
    """Return what the template prints.

    Args:
        source: Text of the template.
        messages: Messages as dicts with `role` and `content`.
        tools: Tool schemas, or nothing.
        variables: Further names the template may use: special tokens, `add_generation_prompt`.

    Raises:
        RenderingRefusedError: The template raises on these messages.
    """
    try:
        return "".join(_stream(source, messages, tools, variables))
    except _ROW_ERRORS as error:
        raise _refusal(error) from error


def render_marked(
    source: str, messages: Sequence[Mapping[str, Any]], tools: list[Any] | None, variables: Mapping[str, Any]
) -> list[str]:
    """Return what the template prints, cut at its `{% generation %}` marks.

    Even places (0, 2, ...) hold text outside of marks, odd places text inside; the number of places is odd.
    Joined they are what `render_text` returns.
    """
    parts: list[str] = []
    current: list[str] = []
    try:
        for piece in _stream(source, messages, tools, variables):
            if piece is _BEGIN or piece is _END:
                parts.append("".join(current))
                current = []
            else:
                current.append(piece)
    except _ROW_ERRORS as error:
        raise _refusal(error) from error
    parts.append("".join(current))
    return parts
