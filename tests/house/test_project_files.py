import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.house.places import PACKAGE, ROOT

READMES = ("README.md", "README_zh.md")
TREE_LINE = re.compile(r"^(?P<indent>(?: {2})*)(?P<name>[\w./-]+)(?: {2,}(?P<note>\S.*))?$")


def tree_of(readme: str) -> list[tuple[Path, str]]:
    """Return path and note of every line of the annotated tree in a README."""
    text = (ROOT / readme).read_text(encoding="utf-8")
    block = re.search(r"```text tree\n(.*?)```", text, re.DOTALL)
    assert block, f"{readme} has no block that starts with ```text tree"
    entries: list[tuple[Path, str]] = []
    folders: list[str] = []
    for line in block[1].splitlines():
        match = TREE_LINE.match(line)
        assert match, f"{readme}: cannot read the line {line!r}"
        del folders[len(match["indent"]) // 2 :]
        entries.append((ROOT.joinpath(*folders, match["name"]), match["note"] or ""))
        folders.append(match["name"])
    return entries


@pytest.mark.parametrize("readme", READMES)
def test_everything_in_the_tree_of_the_readme_exists(readme):
    missing = [str(path.relative_to(ROOT)) for path, _ in tree_of(readme) if not path.exists()]
    assert missing == []


@pytest.mark.parametrize("readme", READMES)
def test_every_package_is_in_the_tree_with_a_note(readme):
    noted = {path for path, note in tree_of(readme) if note}
    packages = {entry for entry in PACKAGE.iterdir() if (entry / "__init__.py").is_file()}
    assert packages - noted == set()


def test_the_two_trees_show_the_same():
    first, second = ([path for path, _ in tree_of(readme)] for readme in READMES)
    assert first == second


def test_both_programs_are_the_same():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts["tunesmith"] == scripts["llamafactory-cli"] == "tunesmith.cli.main:main"


def test_the_version_is_said_once_and_the_same_everywhere():
    import tunesmith

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == tunesmith.__version__
    assert f"## {tunesmith.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_licence_is_apache_2():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


@pytest.mark.parametrize("file", ["cpu.lock", "dev.lock"])
def test_locked_versions_are_exact_and_name_no_place(file):
    lines = (ROOT / "requirements" / file).read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert pins
    assert all(re.fullmatch(r"[a-z0-9._-]+==[0-9][\w.]*", line) for line in pins)
    names = [pin.partition("==")[0] for pin in pins]
    assert names == sorted(set(names))


def test_the_lock_files_hold_every_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = {
        line.partition("==")[0]
        for file in ("cpu.lock", "dev.lock")
        for line in (ROOT / "requirements" / file).read_text(encoding="utf-8").splitlines()
    }
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["gguf"], *extras["plot"], *extras["metrics"], *extras["dev"]]
    names = {re.match(r"[\w.-]+", line)[0].lower().replace("_", "-") for line in wanted}
    assert names - pinned - {"tunesmith"} == set()


@pytest.mark.processes
def test_importing_the_package_loads_nothing_heavy():
    script = "import sys, tunesmith; sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_the_ci_script_can_be_run():
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
