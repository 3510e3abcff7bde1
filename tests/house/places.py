"""Where things are, for the tests of this folder and of tests/docs."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tunesmith"
SOURCES = sorted(PACKAGE.rglob("*.py"))
ALL_PYTHON = sorted(
    file
    for folder in ("src", "tests", "benchmarks", "requirements")
    for file in (ROOT / folder).rglob("*.py")
    if not any(part.startswith(".") or "venv" in part for part in file.relative_to(ROOT).parts)
)


def name_of(file: Path) -> str:
    """Return a path as it is shown in test ids and messages."""
    return file.relative_to(ROOT).as_posix()
