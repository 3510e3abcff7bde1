import ast
from pathlib import Path

import pytest

from tests.house.places import ALL_PYTHON, PACKAGE, SOURCES, name_of

LONGEST_FILE = 400
DRAWERS = {"utils", "util", "misc", "helper", "helpers", "common", "core", "extras", "lib"}


@pytest.mark.parametrize("file", ALL_PYTHON, ids=name_of)
def test_a_file_is_short_enough_to_read(file: Path):
    lines = len(file.read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST_FILE, f"{lines} lines; split it by meaning"


@pytest.mark.parametrize("file", ALL_PYTHON, ids=name_of)
def test_nothing_is_a_drawer(file: Path):
    names = {*file.relative_to(PACKAGE.parents[1]).with_suffix("").parts}
    assert not names & DRAWERS, "name it after what it holds"


@pytest.mark.parametrize("file", SOURCES, ids=name_of)
def test_a_module_says_what_it_is_in_one_line(file: Path):
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    assert text, "no docstring"
    first = text.splitlines()[0]
    assert first.endswith((".", ":")), first
    assert "TODO" not in first


@pytest.mark.parametrize("file", [file for file in SOURCES if file != PACKAGE / "cli" / "output.py"], ids=name_of)
def test_only_one_module_prints(file: Path):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", f"line {node.lineno}: log it, or show it through cli/output.py"


@pytest.mark.parametrize("file", SOURCES, ids=name_of)
def test_no_error_is_caught_without_being_named(file: Path):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ExceptHandler):
            caught = (
                [ast.unparse(kind) for kind in ast.walk(node.type) if isinstance(kind, ast.Name)] if node.type else []
            )
            # BaseException may be caught to clean up, if it is raised again.
            raises = any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node))
            assert caught, f"line {node.lineno}: bare except"
            assert "Exception" not in caught, f"line {node.lineno}: name the exception"
            assert "BaseException" not in caught or raises, f"line {node.lineno}: BaseException is swallowed"
