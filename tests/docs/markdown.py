"""Code blocks and links of the project's pages."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.house.places import ROOT, name_of

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    """Return the fenced blocks of all pages in some languages."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            block = Block(page, text.count("\n", 0, match.start()) + 1, match["language"].strip(), match["text"])
            if block.language in languages:
                found.append(block)
    return found


def shell_commands() -> list[tuple[str, list[str]]]:
    """Return place and words of every command in shell blocks; continued lines are joined, comments dropped."""
    commands = []
    for block in blocks("bash", "sh", "shell", "console"):
        text = block.text.replace("\\\n", " ")
        for line in text.splitlines():
            for part in line.split("&&"):
                words = shlex.split(part.removeprefix("$ "), comments=True)
                if words:
                    commands.append((f"{block} {words[0]}", words))
    return commands


def links() -> Iterator[tuple[Path, str, str]]:
    """Yield page, target and heading of every link into the project; the target is empty for one within the page."""
    for page in PAGES:
        for match in _LINK.finditer(_FENCE.sub("", page.read_text(encoding="utf-8"))):
            target, _, heading = match["target"].partition("#")
            if "://" not in target and not target.startswith("mailto:"):
                yield page, target, heading


def headings(page: Path) -> set[str]:
    """Return the anchors that a page's headings get where it is shown."""
    lines = _FENCE.sub("", page.read_text(encoding="utf-8")).splitlines()
    titles = [line.lstrip("#").strip().lower() for line in lines if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}
