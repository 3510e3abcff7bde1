import io
import json
import sys

import pytest

from tunesmith.cli import output
from tunesmith.errors import DataError


class Console(io.TextIOWrapper):
    """A console of a given encoding, a terminal or not, that strict Python would crash on."""

    def __init__(self, encoding: str, *, is_terminal: bool = False) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, errors="strict", write_through=True)
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal

    @property
    def text(self) -> str:
        return self.buffer.getvalue().decode(self.encoding)


@pytest.fixture
def console(monkeypatch):
    def install(encoding="utf-8", *, is_terminal=False):
        stream = Console(encoding, is_terminal=is_terminal)
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        return stream

    return install


def test_text_passes_through_a_utf8_console(console):
    stream = console()
    output.show_text("你好")
    assert stream.text == "你好\n"


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_console_that_cannot_show_a_character_gets_its_escape(console, encoding):
    stream = console(encoding)
    output.show_text("a 你 b")
    output.show_error("缺")
    assert stream.text == "a \\u4f60 b\nerror: \\u7f3a\n"


@pytest.mark.parametrize("encoding", ["utf-8", "UTF8", "ascii", "cp1252", "gbk"])
def test_json_is_json_on_any_console(console, encoding):
    stream = console(encoding)
    value = {"text": "né 你好 🙂", "half of a character": "\ud83d", "control": "\x1b"}
    output.show_json(value)
    output.show_json(value, indent=2)
    line, indented = stream.text.split("\n", 1)
    assert json.loads(line) == json.loads(indented) == value
    assert ("né 你好" in line) is (encoding.lower() in ("utf-8", "utf8"))


def test_errors_are_red_on_a_terminal_unless_colour_is_unwanted(console, monkeypatch):
    stream = console(is_terminal=True)
    output.show_error("text")
    monkeypatch.setenv("NO_COLOR", "1")
    output.show_error("text")
    assert stream.text == "\x1b[31merror:\x1b[0m text\nerror: text\n"


def test_pieces_are_shown_as_they_come_and_returned_whole(console):
    stream = console()
    assert output.show_pieces(["Hel", "lo"]) == "Hello"
    assert stream.text == "Hello\n"


def test_the_line_is_ended_when_the_pieces_stop_with_an_error(console):
    stream = console()

    def pieces():
        yield "Hel"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        output.show_pieces(pieces())
    assert stream.text == "Hel\n"


def test_a_table_is_one_line_per_cell_where_nobody_watches(console):
    stream = console()
    output.show_table("Title", ("question", "answer"), [("Who?", "Me.")])
    assert stream.text == "Title\n  question: Who?\n  answer: Me.\n\n"


def test_a_table_on_a_terminal_shows_brackets_as_they_are(console):
    stream = console(is_terminal=True)
    output.show_table("Title", ("question",), [("[bold]Who?[/bold] :smile:",)])
    assert "[bold]Who?[/bold] :smile:" in stream.text
    assert "question" in stream.text


def test_a_table_on_an_ascii_terminal_does_not_crash(console):
    stream = console("ascii", is_terminal=True)
    output.show_table("Title", ("question",), [("你是谁？",)])
    assert "\\u4f60" in stream.text


def test_lines_are_read_until_the_input_ends(console, monkeypatch):
    stream = console()
    monkeypatch.setattr(sys, "stdin", io.StringIO("first\n\nlast"))
    assert [output.read_line("") for _ in range(4)] == ["first", "", "last", None]
    assert stream.text == ""


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
def test_bytes_that_the_console_cannot_read_are_read_as_utf8(console, monkeypatch, encoding):
    console()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("plain\n你好\u0081\n".encode()), encoding=encoding))
    assert [output.read_line("") for _ in range(3)] == ["plain", "你好\u0081", None]


@pytest.mark.parametrize("encoding", ["utf-8", "UTF8"])
def test_input_in_no_known_encoding_is_refused_with_its_bytes(console, monkeypatch, encoding):
    console()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9 x\n"), encoding=encoding))
    with pytest.raises(DataError, match=r"The input is not UTF-8: byte 0xe9 in 'caf.*PYTHONIOENCODING"):
        output.read_line("")


def test_a_prompt_is_shown_before_reading(console, monkeypatch):
    stream = console()
    monkeypatch.setattr(sys, "stdin", io.StringIO("answer\n"))
    assert output.read_line("you: ") == "answer"
    assert stream.text == "you: "


def test_a_pipe_is_not_interactive(console, monkeypatch):
    console(is_terminal=True)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert not output.is_interactive()


def test_marked_parts_are_green_on_a_terminal_and_enclosed_elsewhere(console):
    spans = [output.Span("ask", False), output.Span("say\x07", True)]
    terminal = console(is_terminal=True)
    output.show_spans(spans)
    assert terminal.text == "\x1b[2mask\x1b[0m\x1b[32msay\\x07\x1b[0m\n"
    pipe = console()
    output.show_spans(spans)
    assert pipe.text == "ask>>>say\\x07<<<\n"
