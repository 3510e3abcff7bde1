import io
import sys

import pytest

from tunesmith.cli import output
from tunesmith.cli.commands.chat import converse


class Session:
    """Answers in two pieces; `interrupt` plays a Ctrl-C in the middle of an answer."""

    def __init__(self):
        self.questions = []
        self.num_clears = 0

    def answer(self, text):
        self.questions.append(text)
        yield "you said "
        if text == "interrupt":
            raise KeyboardInterrupt
        yield text

    def clear(self):
        self.num_clears += 1


@pytest.fixture
def talk(monkeypatch, capsys):
    def run(text, *, is_interactive=False):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        session = Session()
        converse(session, is_interactive=is_interactive)
        return session, capsys.readouterr().out

    return run


def test_a_pipe_gets_the_answers_and_nothing_else(talk):
    session, shown = talk("one\n\n  two  \n")
    assert session.questions == ["one", "two"]
    assert shown == "you said one\nyou said two\n"


@pytest.mark.parametrize("word", ["/exit", "exit"])
def test_exit_leaves(talk, word):
    session, _ = talk(f"one\n{word}\ntwo\n")
    assert session.questions == ["one"]


@pytest.mark.parametrize("word", ["/clear", "clear"])
def test_clear_forgets(talk, word):
    session, shown = talk(f"one\n{word}\ntwo\n")
    assert session.num_clears == 1
    assert session.questions == ["one", "two"]
    assert "forgotten" not in shown


def test_a_person_is_told_what_to_do_and_who_speaks(talk):
    session, shown = talk("one\n/clear\n", is_interactive=True)
    assert shown.startswith("Type a question. /clear forgets the conversation, /exit leaves")
    assert "you: model: you said one\n" in shown
    assert "The conversation is forgotten." in shown
    assert session.num_clears == 1


def test_ctrl_c_stops_an_answer_and_not_the_chat(talk):
    session, shown = talk("interrupt\nnext\n", is_interactive=True)
    assert session.questions == ["interrupt", "next"]
    assert "you said \n(stopped)\n" in shown


def test_ctrl_c_ends_a_run_from_a_pipe(talk):
    with pytest.raises(KeyboardInterrupt):
        talk("interrupt\nnext\n")


def test_ctrl_c_at_the_question_ends_the_chat(monkeypatch):
    def interrupt(prompt):
        raise KeyboardInterrupt

    monkeypatch.setattr(output, "read_line", interrupt)
    with pytest.raises(KeyboardInterrupt):
        converse(Session(), is_interactive=True)
