import subprocess
import sys

import pytest

from tunesmith.runtime import open_files
from tunesmith.runtime.open_files import OpenFileLimit, count_open_files, raise_open_file_limit, read_open_file_limit

resource = pytest.importorskip("resource")


@pytest.fixture(autouse=True)
def limits():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_is_raised_as_far_as_needed_and_never_lowered(limits):
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    assert raise_open_file_limit(300).soft == 300
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 300
    assert raise_open_file_limit(10).soft == 300


def test_the_hard_limit_is_the_end():
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 80))\n"
        "from tunesmith.runtime.open_files import raise_open_file_limit as up\n"
        "assert (up(1000).soft, up(1000).hard) == (80, 80)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_open_files_are_counted(tmp_path):
    before = count_open_files()
    with (tmp_path / "a").open("w"), (tmp_path / "b").open("w"):
        assert count_open_files() == before + 2


def test_a_system_without_limits_has_none(monkeypatch):
    monkeypatch.setattr(open_files, "_limits", None)
    assert read_open_file_limit() == raise_open_file_limit(1 << 20) == OpenFileLimit(1 << 30, 1 << 30)


def test_no_limit_is_a_large_one(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, resource.RLIM_INFINITY))
    assert read_open_file_limit() == OpenFileLimit(1024, 1 << 30)
