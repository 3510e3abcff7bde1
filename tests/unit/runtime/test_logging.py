import errno
import io
import logging
import sys

import pytest
from tqdm import tqdm

from tunesmith.runtime.logging import ConsoleFormatter, ConsoleHandler, configure_logging, wants_colour


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restore_logging():
    root, ours = logging.getLogger(), logging.getLogger("tunesmith")
    handlers, level = list(root.handlers), ours.level
    yield
    root.handlers[:] = handlers
    ours.setLevel(level)


def log_all(name: str = "tunesmith.part") -> None:
    logger = logging.getLogger(name)
    logger.debug("a detail")
    logger.info("the plan")
    logger.warning("a doubt")


def test_information_is_plain_and_the_rest_names_its_level(capsys):
    configure_logging("INFO")
    log_all()
    assert capsys.readouterr().err == "the plan\nwarning: a doubt\n"


def test_processes_other_than_the_first_only_warn_and_say_who_they_are(capsys):
    configure_logging("INFO", rank=3)
    log_all()
    assert capsys.readouterr().err == "[process 3] warning: a doubt\n"


def test_configuring_again_does_not_double_messages(capsys):
    configure_logging("INFO")
    configure_logging("DEBUG")
    log_all()
    assert capsys.readouterr().err == "debug: a detail\nthe plan\nwarning: a doubt\n"


def test_noisy_libraries_do_not_inform(capsys):
    configure_logging("INFO")
    log_all("httpx")
    assert capsys.readouterr().err == "warning: a doubt\n"


def test_missing_kernels_of_other_machines_are_no_warning(capsys):
    configure_logging("INFO")
    logging.getLogger("torchao").warning("no triton")
    assert capsys.readouterr().err == ""


def test_a_library_that_writes_itself_is_not_heard_twice(capsys):
    configure_logging()
    logging.getLogger("huggingface_hub").warning("Retrying")
    assert "warning: Retrying" not in capsys.readouterr().err


@pytest.mark.parametrize("bars_are_loaded", [True, False])
def test_a_terminal_that_is_gone_ends_no_run(monkeypatch, bars_are_loaded):
    class Gone(io.StringIO):
        def write(self, text):
            raise OSError(errno.EIO, "Input/output error")

    if not bars_are_loaded:
        monkeypatch.delitem(sys.modules, "tqdm")
    ConsoleHandler(Gone()).emit(logging.LogRecord("tunesmith", logging.INFO, "", 0, "the plan", None, None))


def test_a_message_stands_above_a_progress_bar():
    stream = io.StringIO()
    handler = ConsoleHandler(stream)
    record = logging.LogRecord("tunesmith", logging.INFO, "", 0, "the plan", None, None)
    with tqdm(total=2, file=io.StringIO()):
        handler.emit(record)
    assert stream.getvalue() == "the plan\n"


def test_a_warning_is_coloured_on_a_terminal_only():
    record = logging.LogRecord("tunesmith", logging.WARNING, "", 0, "a doubt", None, None)
    assert ConsoleFormatter(is_coloured=True).format(record) == "\x1b[33mwarning: a doubt\x1b[0m"
    assert ConsoleFormatter(is_coloured=False).format(record) == "warning: a doubt"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "NO_COLOR": "1"}, False)],
)
def test_colour_follows_the_terminal_and_no_color(monkeypatch, environment, expected):
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert wants_colour(Terminal()) is expected
    assert wants_colour(io.StringIO()) is False
