"""What the pages show is what the program does: commands, settings, files and Python."""

import ast
import re

import pytest

from tests.docs.markdown import PAGES, blocks, headings, links, shell_commands
from tests.house.places import PACKAGE, ROOT, name_of
from tunesmith.cli.main import COMMANDS, NOT_YET
from tunesmith.config import load_config, parse_command_line
from tunesmith.data.chat.catalog import template_names
from tunesmith.data.formats.fields import BAD_ROWS
from tunesmith.data.formats.turns import DISORDER

COMMANDS_OF_US = [(place, words) for place, words in shell_commands() if words[0] in ("tunesmith", "llamafactory-cli")]
TRAIN_COMMANDS = [(place, words[2:]) for place, words in COMMANDS_OF_US if words[1:2] == ["train"]]
MAKE_COMMANDS = [(place, words[1:]) for place, words in shell_commands() if words[0] == "make"]
INLINE = re.compile(r"`(?:tunesmith|llamafactory-cli) ([a-z]+)[^`]*`")


def by_place(cases):
    return {"argvalues": cases, "ids": [place for place, _ in cases]}


def test_the_pages_show_something_to_run():
    assert TRAIN_COMMANDS
    assert MAKE_COMMANDS
    assert blocks("yaml")
    assert blocks("python")


@pytest.mark.parametrize(("place", "words"), **by_place(COMMANDS_OF_US))
def test_a_command_in_a_block_exists(place, words):
    assert words[1] in COMMANDS or words[1].startswith("-")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_command_in_the_text_exists_or_is_said_to_be_missing(page):
    for name in INLINE.findall(page.read_text(encoding="utf-8")):
        assert name in COMMANDS or name in NOT_YET


@pytest.mark.parametrize(("place", "words"), **by_place(TRAIN_COMMANDS))
def test_the_settings_of_a_train_command_are_read(place, words):
    source, overrides = parse_command_line(words)
    load_config({} if source else None, overrides, purpose="read", environ={})


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_a_configuration_is_read(block, tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(block.text, encoding="utf-8")
    load_config(file, purpose="read", environ={})


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_can_be_compiled(block):
    ast.parse(block.text)


@pytest.mark.parametrize(("place", "words"), **by_place(MAKE_COMMANDS))
def test_a_make_target_exists(place, words):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for word in words:
        if "=" in word:
            assert f"{word.partition('=')[0]} ?=" in makefile
        else:
            assert re.search(rf"^{word}:", makefile, re.MULTILINE), word


def test_every_template_is_named():
    page = (ROOT / "docs" / "templates.md").read_text(encoding="utf-8")
    assert set(template_names()) - set(re.findall(r"`([a-z0-9_.-]+)`", page)) == set()


def test_every_reason_for_which_a_row_is_dropped_is_explained():
    raised = re.compile(r'\b(?:UnusableRowError|RenderingRefusedError|Dropped)\(\s*"([^"]+)"')
    sources = (ROOT / "src" / "tunesmith" / "data").rglob("*.py")
    reasons = {reason for source in sources for reason in raised.findall(source.read_text(encoding="utf-8"))}
    reasons |= BAD_ROWS | DISORDER
    assert len(reasons) > 20
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    assert {reason for reason in reasons if f"`{reason}`" not in page} == set()


def test_links_lead_to_files_and_headings():
    missing = []
    for page, target, heading in links():
        file = page.parent / target if target else page
        if not file.exists() or (heading and heading not in headings(file)):
            missing.append(f"{name_of(page)}: {target}#{heading}")
    assert missing == []


def test_every_page_is_in_the_index():
    index = ROOT / "docs" / "README.md"
    linked = {(page.parent / target).resolve() for page, target, _ in links() if page == index}
    assert {page.name for page in PAGES if page.parent == index.parent and page not in {index, *linked}} == set()


def test_every_package_is_in_the_picture_of_the_house():
    picture = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = {entry.name for entry in PACKAGE.iterdir() if (entry / "__init__.py").is_file()}
    assert {name for name in packages if f"| `{name}/` |" not in picture} == set()
