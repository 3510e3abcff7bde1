"""The program `tunesmith`, also installed as `llamafactory-cli`: commands, exit codes, errors in plain words.

Exit codes: 0 done; 2 wrong command or configuration; 3 data; 4 model; 5 checkpoint; 6 training; 7 a package
is missing; 130 interrupted; 143 ended by SIGTERM, 129 by SIGHUP; 1 a disk that is full, read-only or somebody
else's. Anything else is a defect of the program and shows its traceback (exit code 1 as well).
"""

import difflib
import errno
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from tunesmith.cli import output
from tunesmith.errors import EXIT_INTERRUPTED, TunesmithError
from tunesmith.runtime.disk import NO_ROOM, render_room
from tunesmith.runtime.logging import configure_logging
from tunesmith.runtime.ranks import current_ranks, leave_error_to_main_process
from tunesmith.runtime.stop_signals import find_stop_signals

EXIT_USAGE = 2
EXIT_DISK = 1

_DISK_ERRORS = NO_ROOM | {errno.EROFS, errno.EACCES}
"""No room, a file system that takes no writes, a place of somebody else: any file that is opened can meet them."""


class CommandModule(Protocol):
    """What each module in `cli/commands` offers."""

    HELP: str

    def run(self, arguments: Sequence[str]) -> int:
        """Do the work and return the exit code."""
        ...


@dataclass(frozen=True, slots=True)
class Command:
    """One line of the command table."""

    module: str
    summary: str


COMMANDS: dict[str, Command] = {
    "train": Command("tunesmith.cli.commands.train", "train a model from a YAML file, flags, or both"),
    "chat": Command("tunesmith.cli.commands.chat", "talk to a model in the terminal, with its adapter"),
    "export": Command("tunesmith.cli.commands.export", "merge an adapter, write a model ready to serve"),
    "score": Command("tunesmith.cli.commands.score", "rate the rows of a file with a reward model"),
    "preview": Command("tunesmith.cli.commands.preview", "show what the model will see of a row"),
    "data": Command("tunesmith.cli.commands.data", "prepare the data of a run, or report what is in it"),
    "models": Command("tunesmith.cli.commands.models", "show what a model is, without loading it"),
    "tune": Command("tunesmith.cli.commands.tune", "measure how many workers the data of a run needs"),
    "config": Command("tunesmith.cli.commands.config", "check, show or start a configuration file"),
    "template": Command("tunesmith.cli.commands.template", "list, show and check chat templates"),
    "quickstart": Command("tunesmith.cli.commands.quickstart", "train the quickstart recipe, show what changed"),
    "env": Command("tunesmith.cli.commands.env", "print versions and hardware, for a bug report"),
    "version": Command("tunesmith.cli.commands.version", "print the version"),
}

NOT_YET: dict[str, str] = {
    "webui": "use `tunesmith train` with a YAML file (`tunesmith config new sft` writes one to start from)",
    "webchat": "use `tunesmith chat` in the terminal",
    "api": "use `tunesmith export`, and a server that reads Hugging Face model folders",
    "eval": "use `tunesmith train` with `eval_dataset` for loss, perplexity and accuracy, "
    "or `predict_with_generate` for BLEU and ROUGE",
}
"""Commands of LLaMA-Factory that do not exist here yet, and what to do meanwhile."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code.

    Args:
        argv: Words after the program's name; those of this process by default.
    """
    _open_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    configure_logging("INFO", current_ranks().rank)
    try:
        with _unwinding_on_stop_signals():
            return _run_command(words)
    except TunesmithError as error:
        ranks = current_ranks()
        leave_error_to_main_process(ranks)
        output.show_error(str(error) if ranks.is_main else f"[process {ranks.rank}] {error}")
        return error.exit_code
    except KeyboardInterrupt:
        output.show_error("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader (such as `head`) has gone. Python would fail once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        output.show_error(_describe_disk(error))
        return EXIT_DISK


def _describe_disk(error: OSError) -> str:
    if error.filename is None:
        return f"A file cannot be written: {error.strerror}. Make room, also for temporary files (TMPDIR)."
    if error.errno == errno.EACCES:
        return f"{error.filename} cannot be opened: {error.strerror}. Change its permissions, or name another place."
    room = f" ({render_room(error.filename)})" if error.errno in NO_ROOM else ""
    advice = "Make room there" if room else "Make it writable"
    return f"{error.filename} cannot be written: {error.strerror}{room}. {advice}, or name another folder."


def _open_closed_streams() -> None:
    """Send to nowhere what is written to a standard stream that was closed (`2>&-`), as some schedulers do.

    Left closed, its number would be given to the next file that is opened, and messages would go into that.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - open as long as the program
            if stream.fileno() != number:
                os.dup2(stream.fileno(), number)
            setattr(sys, name, stream)


@contextmanager
def _unwinding_on_stop_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the program as Ctrl-C does, so that it removes what it has half written.

    Not in one of several processes: it may wait for the others inside a library, where no Python runs to unwind.
    """
    if threading.current_thread() is not threading.main_thread() or current_ranks().world_size > 1:
        yield
        return
    # Python has a handler of its own for SIGINT, which raises KeyboardInterrupt.
    taken = [number for number in find_stop_signals() if number != signal.SIGINT]
    before = {number: signal.signal(number, _end) for number in taken}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: object) -> None:
    output.show_error(f"ended by {signal.Signals(number).name}")
    raise SystemExit(128 + number)


def _run_command(words: list[str]) -> int:
    if not words or words[0] in ("help", "-h", "--help"):
        output.show_text(render_usage())
        return 0
    name, arguments = words[0], words[1:]
    if name in ("-v", "--version"):
        name = "version"
    if name in NOT_YET:
        output.show_error(f"The command {name!r} is known, not supported yet: {NOT_YET[name]}.")
        return EXIT_USAGE
    if name not in COMMANDS:
        output.show_error(_unknown_command(name))
        return EXIT_USAGE
    module = cast("CommandModule", importlib.import_module(COMMANDS[name].module))
    if "-h" in arguments or "--help" in arguments:
        output.show_text(module.HELP.strip())
        return 0
    return module.run(arguments)


def render_usage() -> str:
    """Return the text of `tunesmith --help`."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "Post-train open language models from one YAML file.",
            "",
            "usage: tunesmith COMMAND ...",
            "",
            *lines,
            "",
            "`tunesmith COMMAND --help` says more. The program is also installed as `llamafactory-cli`.",
        ]
    )


def _unknown_command(name: str) -> str:
    if name.endswith((".yaml", ".yml", ".json")):
        return f"{name!r} is a file, not a command. To train with it: tunesmith train {name}"
    near = difflib.get_close_matches(name, [*COMMANDS, *NOT_YET], n=3, cutoff=0.5)
    hint = f"Nearest: {', '.join(near)}. " if near else ""
    return f"There is no command {name!r}. {hint}Commands: {', '.join(COMMANDS)}."


if __name__ == "__main__":
    sys.exit(main())
