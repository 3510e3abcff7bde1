import errno
import io
import os
import re
import signal
import subprocess
import sys
import types

import pytest

from tunesmith.cli.main import COMMANDS, NOT_YET, Command, main
from tunesmith.errors import (
    CheckpointError,
    ConfigError,
    ConfigProblem,
    DataError,
    MissingDependencyError,
    ModelError,
    TrainingError,
    TunesmithError,
)
from tunesmith.runtime.files import atomic_directory


@pytest.fixture
def command(monkeypatch):
    """Install a command `probe` whose `run` is given by the test."""

    def install(run):
        module = types.ModuleType("probe_command")
        module.HELP = "usage: tunesmith probe"
        module.run = run
        monkeypatch.setitem(sys.modules, "probe_command", module)
        monkeypatch.setitem(COMMANDS, "probe", Command("probe_command", "for a test"))

    return install


@pytest.mark.parametrize("words", [[], ["help"], ["-h"], ["--help"]])
def test_help_lists_every_command(capsys, words):
    assert main(words) == 0
    text = capsys.readouterr().out
    for name, entry in COMMANDS.items():
        assert f"  {name} " in text
        assert entry.summary in text


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_has_help_with_its_usage(capsys, name, flag):
    assert main([name, flag]) == 0
    assert f"usage: tunesmith {name}" in capsys.readouterr().out


def test_an_unknown_command_exits_with_2_and_names_the_nearest(capsys):
    assert main(["trian", "run.yaml"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: There is no command 'trian'. Nearest: train")


def test_a_command_like_no_other_lists_all(capsys):
    assert main(["zzzz"]) == 2
    assert f"There is no command 'zzzz'. Commands: {', '.join(COMMANDS)}." in capsys.readouterr().err


def test_a_file_in_the_place_of_the_command_says_how_to_train_with_it(capsys):
    assert main(["run.yaml"]) == 2
    assert "tunesmith train run.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("name", NOT_YET)
def test_commands_of_llamafactory_that_are_missing_are_known_and_refused(capsys, name):
    assert main([name]) == 2
    error = capsys.readouterr().err
    assert f"{name!r} is known, not supported yet" in error
    assert "use `tunesmith" in error


def test_arguments_reach_the_command_as_they_are(command):
    seen = []
    command(lambda arguments: seen.append(list(arguments)) or 0)
    assert main(["probe", "a b", "--key", "x y"]) == 0
    assert seen == [["a b", "--key", "x y"]]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TunesmithError("text"), 1),
        (ConfigError("text"), 2),
        (DataError("text"), 3),
        (ModelError("text"), 4),
        (CheckpointError("text"), 5),
        (TrainingError("text"), 6),
        (MissingDependencyError("text"), 7),
    ],
)
def test_an_error_is_shown_without_a_traceback_and_has_its_exit_code(capsys, command, error, code):
    def fail(arguments):
        raise error

    command(fail)
    assert main(["probe"]) == code
    assert capsys.readouterr().err == "error: text\n"


def test_all_problems_of_a_configuration_are_shown(capsys, command):
    def fail(arguments):
        raise ConfigError([ConfigProblem("run.yaml:3", "first"), ConfigProblem("--seed", "second")])

    command(fail)
    assert main(["probe"]) == 2
    assert capsys.readouterr().err == "error: run.yaml:3: first\n--seed: second\n"


@pytest.mark.parametrize(
    ("error", "pattern"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "out/trainer_log.jsonl"),
            r"out/trainer_log\.jsonl cannot be written: No space left on device \([\d.]+ .iB are free in /.*\)\. Make ",
        ),
        (
            OSError(errno.EROFS, "Read-only file system", "out/x"),
            r"out/x cannot be written: Read-only file system\. Make it writable, or name another folder\.",
        ),
        (PermissionError(errno.EACCES, "Permission denied", "/a/b"), r"/a/b cannot be opened: Permission denied\."),
        (OSError(errno.ENOSPC, "No space left on device"), r"A file cannot be written: No space .*\(TMPDIR\)\."),
    ],
)
def test_a_disk_that_takes_nothing_is_said_without_a_traceback(capsys, command, error, pattern):
    def fail(arguments):
        raise error

    command(fail)
    assert main(["probe"]) == 1
    assert re.fullmatch(f"error: {pattern}.*\n", capsys.readouterr().err)


def test_an_error_of_the_system_that_is_no_full_disk_keeps_its_traceback(command):
    def fail(arguments):
        raise OSError(errno.EINVAL, "Invalid argument")

    command(fail)
    with pytest.raises(OSError, match="Invalid argument"):
        main(["probe"])


def test_a_defect_keeps_its_traceback(command):
    def fail(arguments):
        raise ZeroDivisionError

    command(fail)
    with pytest.raises(ZeroDivisionError):
        main(["probe"])


def test_an_interruption_exits_with_130(capsys, command):
    def interrupt(arguments):
        raise KeyboardInterrupt

    command(interrupt)
    assert main(["probe"]) == 130
    assert capsys.readouterr().err == "error: interrupted\n"


def test_a_closed_standard_error_is_replaced(command, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr("tunesmith.cli.main.os.dup2", lambda source, number: None)  # this process keeps its own
    command(lambda arguments: sys.stderr.write("to nowhere") and 0)
    assert main(["probe"]) == 0
    sys.stderr.close()


@pytest.fixture
def hangup():
    """Sets what this process does on SIGHUP, and gives it back after the test."""
    before = signal.getsignal(signal.SIGHUP)
    yield lambda handler: signal.signal(signal.SIGHUP, handler)
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_unwinds_so_that_half_written_folders_go(capsys, command, tmp_path, hangup, number, code):
    def end(arguments):
        with atomic_directory(tmp_path / "out") as folder:
            (folder / "half").touch()
            signal.raise_signal(number)

    hangup(signal.SIG_DFL)
    before = signal.getsignal(number)
    command(end)
    with pytest.raises(SystemExit) as caught:
        main(["probe"])
    assert caught.value.code == code
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == f"error: ended by {number.name}\n"
    assert signal.getsignal(number) == before


def test_under_nohup_a_closed_terminal_ends_nothing(command, hangup):
    hangup(signal.SIG_IGN)
    command(lambda arguments: signal.raise_signal(signal.SIGHUP) or 0)
    assert main(["probe"]) == 0


def test_an_error_for_a_terminal_that_is_gone_keeps_its_exit_code(command, monkeypatch):
    class Gone(io.StringIO):
        def write(self, text):
            raise OSError(errno.EIO, "Input/output error")

    def fail(arguments):
        raise DataError("text")

    command(fail)
    monkeypatch.setattr(sys, "stderr", Gone())
    assert main(["probe"]) == DataError.exit_code


def test_one_of_several_processes_leaves_sigterm_to_the_system(command, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    seen = []
    command(lambda arguments: seen.append(signal.getsignal(signal.SIGTERM)) or 0)
    before = signal.getsignal(signal.SIGTERM)
    assert main(["probe"]) == 0
    assert seen == [before]


@pytest.mark.parametrize("flag", ["version", "--version", "-v"])
def test_the_version_is_printed(capsys, flag):
    assert main([flag]) == 0
    assert capsys.readouterr().out == "tunesmith 0.1.0\n"


def test_the_environment_is_printed_one_fact_per_line(capsys):
    assert main(["env"]) == 0
    facts = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert facts["tunesmith"] == "0.1.0"
    assert facts["torch"].startswith("2.")
    assert facts["processors"].split()[0].replace(".", "").isdigit()
    assert {"transformers", "peft", "memory free", "python"} <= facts.keys()


def test_a_package_that_is_absent_is_said_to_be(monkeypatch, capsys):
    from tunesmith.cli.commands import env

    monkeypatch.setattr(env, "OPTIONAL_PACKAGES", ("no-such-package",))
    assert main(["env"]) == 0
    assert "no-such-package: not installed\n" in capsys.readouterr().out


HEAVY = ("torch", "transformers", "numpy", "datasets", "peft", "rich")


@pytest.mark.processes
@pytest.mark.parametrize(
    "words", [["--help"], ["version"], ["train", "--help"], ["config", "check", "{file}"]], ids=" ".join
)
def test_quick_commands_load_nothing_heavy_and_take_less_than_half_a_second(tmp_path, words):
    file = tmp_path / "run.yaml"
    file.write_text("learning_rat: 1e-4\n")
    words = [word.format(file=file) for word in words]
    script = (
        "import sys, time; from tunesmith.cli.main import main; main(sys.argv[1:]); "
        f"loaded = [name for name in {HEAVY!r} if name in sys.modules]; "
        "print('LOADED', loaded, 'SECONDS', time.process_time())"
    )
    seconds = 1.0
    for _ in range(3):
        finished = subprocess.run(
            [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True, env=os.environ
        )
        summary = finished.stdout.splitlines()[-1]
        assert summary.startswith("LOADED [] ")
        seconds = float(summary.split()[-1])  # of the processor: others may be busy on this machine
        if seconds < 0.5:
            break
    assert seconds < 0.5


@pytest.mark.processes
def test_a_reader_that_leaves_early_causes_no_noise():
    script = "import sys; from tunesmith.cli.main import main; sys.exit(main(['--help']))"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    _, error = process.communicate(timeout=30), process.stderr
    assert process.returncode == 1
    assert error.closed or error.read() == b""


def test_an_error_that_only_another_process_has_is_shown_with_its_number(command, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    waited = []
    monkeypatch.setattr("tunesmith.runtime.ranks.time.sleep", waited.append)

    def fail(arguments):
        raise DataError("no such file")

    command(fail)
    assert main(["probe"]) == DataError.exit_code
    assert capsys.readouterr().err == "error: [process 3] no such file\n"
    assert len(waited) == 1
