"""Configuration files: YAML or JSON to values, each with the line it stands on."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from json.decoder import scanstring  # type: ignore[attr-defined]
from pathlib import Path

import yaml

from tunesmith.config.coercion import PlainText
from tunesmith.config.suggestions import render_similar_path
from tunesmith.errors import ConfigError, ConfigProblem

FILE_ENDINGS = (".yaml", ".yml", ".json")
_Place = tuple[str, ...]
_BLANK = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True, slots=True)
class Document:
    """What a configuration file says."""

    name: str
    """The file as the user wrote it; empty for settings that came as a Python mapping."""

    values: Mapping[str, object]
    """Nested values; text written without quotes is `PlainText`."""

    lines: Mapping[_Place, int] = field(default_factory=dict)
    """Line of every key, by its path from the top."""

    problems: tuple[ConfigProblem, ...] = ()
    """Keys that are written twice."""

    def where(self, *path: str) -> str:
        """Return `run.yaml:3` for a key, or its path when there is no file."""
        return f"{self.name}:{self.lines[path]}" if path in self.lines else self.name or ".".join(path)


def read_document(path: str | Path) -> Document:
    """Read one file. A file that cannot be read or is not YAML or JSON is a `ConfigError` with the line."""
    name = str(path)
    if not name.lower().endswith(FILE_ENDINGS):
        raise ConfigError(
            [ConfigProblem(name, f"a configuration file ends in {', '.join(FILE_ENDINGS)}; this name does not.")]
        )
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        hint = render_similar_path(name)
        raise ConfigError([ConfigProblem(name, f"there is no such file (looked in {Path.cwd()}).{hint}")]) from error
    except IsADirectoryError as error:
        raise ConfigError([ConfigProblem(name, "this is a folder; name the file in it.")]) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([ConfigProblem(name, f"the file cannot be read as UTF-8 text: {error}.")]) from error
    return parse_json(text, name) if name.lower().endswith(".json") else parse_yaml(text, name)


def parse_yaml(text: str, name: str) -> Document:
    """Parse YAML. Anchors and merge keys work; a key that is written twice is a problem."""
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        where = f"{name}:{text.count(chr(10), 0, error.position) + 1}"
        raise ConfigError([ConfigProblem(where, f"a control character {error.character:#x} is no text.")]) from error
    try:
        root = loader.get_single_node()
        reader = _YamlReader(name, loader)
        values = {} if root is None else reader.convert(root, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        raise ConfigError([ConfigProblem(where, f"this is not YAML: {_describe(error)}.")]) from error
    finally:
        loader.dispose()
    return _finish(name, values, reader.lines, reader.problems)


def _describe(error: yaml.MarkedYAMLError) -> str:
    """Return what is wrong with a text, in plainer words where the parser's are those of its inside."""
    if error.problem and "'\\t'" in error.problem:
        return "there is a tab where YAML takes spaces only"
    return ", ".join(part for part in (error.context, error.problem) if part)


class _YamlReader:
    """Turns YAML nodes into values and notes the lines on the way."""

    def __init__(self, name: str, loader: yaml.SafeLoader) -> None:
        self.name = name
        self.loader = loader
        self.lines: dict[_Place, int] = {}
        self.problems: list[ConfigProblem] = []
        self._open: list[int] = []

    def convert(self, node: yaml.Node, path: _Place) -> object:
        if id(node) in self._open:
            raise yaml.MarkedYAMLError(problem="a value contains itself", problem_mark=node.start_mark)
        self._open.append(id(node))
        try:
            return self._convert(node, path)
        finally:
            self._open.pop()

    def _convert(self, node: yaml.Node, path: _Place) -> object:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            items = enumerate(node.value)
            return [self._item(item, (*path, str(index))) for index, item in items]
        is_plain = isinstance(node, yaml.ScalarNode) and node.style is None
        return PlainText(node.value) if is_plain else str(node.value)

    def _item(self, node: yaml.Node, path: _Place) -> object:
        self.lines[path] = node.start_mark.line + 1
        return self.convert(node, path)

    def _mapping(self, node: yaml.MappingNode, path: _Place) -> dict[str, object]:
        self._check_repeated(node)
        self.loader.flatten_mapping(node)  # resolves `<<: *anchor`; own keys come last and win
        values: dict[str, object] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key has to be a single word", problem_mark=key_node.start_mark)
            key = str(key_node.value)
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            values[key] = self.convert(value_node, (*path, key))
        return values

    def _check_repeated(self, node: yaml.MappingNode) -> None:
        first: dict[str, int] = {}
        for key_node, _ in node.value:
            key, line = str(key_node.value), key_node.start_mark.line + 1
            if key in first and key != "<<":
                self.problems.append(_repeated(self.name, key, line, first[key]))
            first.setdefault(key, line)


def parse_json(text: str, name: str) -> Document:
    """Parse JSON. A key that is written twice is a problem."""
    reader = _JsonReader(name, text)
    try:
        values, end = reader.convert(reader.skip(0), ())
        if reader.skip(end) != len(text):
            raise json.JSONDecodeError("Extra data", text, reader.skip(end))
    except json.JSONDecodeError as error:
        raise ConfigError([ConfigProblem(f"{name}:{error.lineno}", f"this is not JSON: {error.msg}.")]) from error
    return _finish(name, values, reader.lines, reader.problems)


class _JsonReader:
    """A JSON parser that notes the line of every key, which the one in the standard library cannot."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.lines: dict[_Place, int] = {}
        self.problems: list[ConfigProblem] = []
        self._scalars = json.JSONDecoder()

    def skip(self, at: int) -> int:
        """Return the position of the next character that is not blank."""
        match = _BLANK.match(self.text, at)
        return match.end() if match else at

    def convert(self, at: int, path: _Place) -> tuple[object, int]:
        """Return the value that starts at a position, and the position after it."""
        opening = self.text[at : at + 1]
        if opening == "{":
            return self._object(at, path)
        if opening == "[":
            return self._array(at, path)
        return self._scalars.raw_decode(self.text, at)

    def _object(self, at: int, path: _Place) -> tuple[dict[str, object], int]:
        values: dict[str, object] = {}
        at = self.skip(at + 1)
        while self.text[at : at + 1] != "}" or values:
            if self.text[at : at + 1] != '"':
                raise json.JSONDecodeError("Expecting a property name in double quotes", self.text, at)
            line = self.text.count("\n", 0, at) + 1
            key, at = scanstring(self.text, at + 1, True)
            at = self._expect(":", self.skip(at))
            if key in values:
                self.problems.append(_repeated(self.name, key, line, self.lines[(*path, key)]))
            self.lines.setdefault((*path, key), line)
            values[key], at = self.convert(at, (*path, key))
            at = self.skip(at)
            if self.text[at : at + 1] == "}":
                break
            at = self._expect(",", at)
        return values, at + 1

    def _array(self, at: int, path: _Place) -> tuple[list[object], int]:
        values: list[object] = []
        at = self.skip(at + 1)
        while self.text[at : at + 1] != "]" or values:
            value, at = self.convert(at, (*path, str(len(values))))
            values.append(value)
            at = self.skip(at)
            if self.text[at : at + 1] == "]":
                break
            at = self._expect(",", at)
        return values, at + 1

    def _expect(self, character: str, at: int) -> int:
        if self.text[at : at + 1] != character:
            raise json.JSONDecodeError(f"Expecting '{character}'", self.text, at)
        return self.skip(at + 1)


def _finish(name: str, values: object, lines: Mapping[_Place, int], problems: list[ConfigProblem]) -> Document:
    if not isinstance(values, dict):
        raise ConfigError([ConfigProblem(name, "the file has to be a list of `key: value` lines at the top.")])
    return Document(name, values, lines, tuple(problems))


def _repeated(name: str, key: str, line: int, first: int) -> ConfigProblem:
    return ConfigProblem(f"{name}:{line}", f"`{key}` is written twice, first on line {first}; remove one of them.")
