"""Jinja in a sandbox, with `{% generation %}` marks that cannot be confused with the text between them.

The environment has what `transformers` gives to chat templates (trimmed blocks, `tojson` that leaves text readable,
`raise_exception`, `strftime_now`, loop controls), so that a template prints here what it prints when served.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import BuiltinMethodType
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, missing
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
_TEXT_METHODS = frozenset(
    {
        *("split", "rsplit", "splitlines", "partition", "rpartition", "strip", "lstrip", "rstrip", "replace"),
        *("startswith", "endswith", "find", "rfind", "count", "lower", "upper", "title", "capitalize"),
        *("removeprefix", "removesuffix"),
    }
)
"""Methods of texts that give texts, numbers and lists of texts; not `format`, which reaches into its arguments."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with short ways for what templates do most: fields of messages, and the place in a loop.

    Jinja asks of every attribute, and of everything that is called, whether it is safe, which takes longer than the
    rest of a rendering: one `content.lstrip()` as long as a whole plain template. Fields of a plain dict, the public
    attributes of Jinja's own loop variable, and most methods of texts always are.
    """

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return `obj.attribute`."""
        if type(obj) is dict:
            if attribute in obj and attribute not in _DICT_ATTRIBUTES:
                return obj[attribute]
        elif type(obj) is LoopContext:
            if attribute in _LOOP_ATTRIBUTES:
                return getattr(obj, attribute)
        elif type(obj) is str and attribute in _TEXT_METHODS:
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return `obj[argument]`."""
        if type(obj) is dict and argument.__class__ is str and argument in obj:
            return obj[argument]
        return super().getitem(obj, argument)

    def call(self, context: Context, function: Any, /, *arguments: Any, **named: Any) -> Any:
        """Return `function(...)`."""
        if (
            type(function) is BuiltinMethodType
            and type(function.__self__) is str
            and function.__name__ in _TEXT_METHODS
        ):
            for name in _NAMES_OF_JINJA:
                named.pop(name, None)
            return function(*arguments, **named)
        return super().call(context, function, *arguments, **named)


_NAMES_OF_JINJA = ("_loop_vars", "_block_vars")
"""Arguments that compiled templates add to calls for Jinja's own functions."""


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
    names = _Names(_given_names(source))
    names.update(variables)
    names["messages"], names["tools"], names["documents"] = messages, tools, None
    # `Template.new_context` merges chains of mappings anew for every rendering.
    context = Context(_environment(), names, None, template.blocks)
    if not template.blocks:  # which alone look up what is set elsewhere in the template
        context.resolve_or_missing = names.__getitem__
    pieces: Iterator[str] = template.root_render_func(context)
    return pieces


class _Names(dict[str, Any]):
    """What a template can refer to."""

    def __missing__(self, name: str) -> Any:
        return missing


@lru_cache(maxsize=512)
def _given_names(source: str) -> dict[str, Any]:
    """Return what every rendering of a template can refer to, and the names that mean nothing yet.

    A template asks for dozens of names, most of which it sets itself later on. With all of them there, one look into a
    dict answers, which takes a quarter of the time of Jinja's own way through two dicts and Python.
    """
    environment = _environment()
    asked = re.findall(r"\bresolve\('(\w+)'\)", environment.compile(source, raw=True))
    return {**dict.fromkeys(asked, missing), **environment.globals}


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
