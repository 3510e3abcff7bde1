import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.places import ALL_PYTHON, SOURCES, name_of

LONGEST_FILE = 400
DRAWERS = {"utils", "util", "misc", "helper", "helpers", "common", "core", "extras", "lib"}


def nodes_of(file: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(file.read_text(encoding="utf-8")))


def test_every_file_is_short_enough_to_read():
    lengths = {name_of(file): len(file.read_text(encoding="utf-8").splitlines()) for file in ALL_PYTHON}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE} == {}, "split by meaning"


def test_nothing_is_a_drawer():
    found = [name_of(file) for file in ALL_PYTHON if DRAWERS & {*Path(name_of(file)).with_suffix("").parts}]
    assert found == [], "name it after what it holds"


def test_every_module_says_what_it_is_in_one_line():
    def first_line(file: Path) -> str:
        return (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n")[0]

    lines = {name_of(file): first_line(file) for file in SOURCES}
    assert {name: line for name, line in lines.items() if not line.endswith((".", ":")) or "TODO" in line} == {}


def test_every_folder_of_modules_is_a_package():
    found = sorted({name_of(file.parent) for file in SOURCES if not (file.parent / "__init__.py").is_file()})
    assert found == [], "import-linter and its contracts do not see what lies there"


def test_only_one_module_prints():
    found = [
        f"{name_of(file)}:{node.lineno}"
        for file in SOURCES
        for node in nodes_of(file)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert found == [], "log it, or show it through cli/output.py"


def test_no_error_is_caught_without_being_named():
    found = []
    for file in SOURCES:
        for node in nodes_of(file):
            if isinstance(node, ast.ExceptHandler) and not is_named(node):
                found.append(f"{name_of(file)}:{node.lineno}")
    assert found == [], "name the exception; BaseException only to clean up and raise again"


def is_named(handler: ast.ExceptHandler) -> bool:
    caught = {kind.id for kind in ast.walk(handler.type) if isinstance(kind, ast.Name)} if handler.type else set()
    raises_again = any(isinstance(node, ast.Raise) and node.exc is None for node in ast.walk(handler))
    return handler.type is not None and "Exception" not in caught and ("BaseException" not in caught or raises_again)
