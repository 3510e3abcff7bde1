import os
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tunesmith.runtime import memory
from tunesmith.runtime.memory import (
    available_memory_bytes,
    cpu_quota,
    keep_freed_memory,
    peak_process_memory_bytes,
    process_memory_bytes,
)

MEBIBYTE = 2**20


def write_cgroup(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text + "\n")


@pytest.fixture
def cgroups(tmp_path):
    write_cgroup(tmp_path / "cgroup")
    (tmp_path / "own").write_text("0::/outer/inner\n")
    return tmp_path / "cgroup"


def test_this_process_holds_some_memory_and_held_at_least_as_much_at_its_peak():
    now = process_memory_bytes()
    assert now > 5 * MEBIBYTE
    assert peak_process_memory_bytes() >= 0.9 * now  # the two are counted at different moments


def test_peak_memory_is_in_bytes():
    block = bytearray(64 * MEBIBYTE)
    block[::4096] = b"x" * len(block[::4096])
    assert peak_process_memory_bytes() > 64 * MEBIBYTE


def test_without_a_container_the_machine_decides(tmp_path):
    free = available_memory_bytes(tmp_path / "none", tmp_path / "none")
    assert free == pytest.approx(psutil.virtual_memory().available, rel=0.2)


def test_a_container_limit_counts_its_file_cache_as_free(cgroups):
    write_cgroup(
        cgroups / "outer",
        memory_max=str(100 * MEBIBYTE),
        memory_current=str(60 * MEBIBYTE),
        memory_stat=f"anon 1\ninactive_file {25 * MEBIBYTE}",
    )
    # 100 - 60 + 25
    assert available_memory_bytes(cgroups, cgroups.parent / "own") == 65 * MEBIBYTE


def test_the_tightest_of_nested_containers_decides(cgroups):
    write_cgroup(cgroups / "outer", memory_max=str(100 * MEBIBYTE), memory_current=str(10 * MEBIBYTE))
    write_cgroup(cgroups / "outer" / "inner", memory_max=str(30 * MEBIBYTE), memory_current=str(10 * MEBIBYTE))
    assert available_memory_bytes(cgroups, cgroups.parent / "own") == 20 * MEBIBYTE


def test_an_unlimited_container_changes_nothing(cgroups):
    write_cgroup(cgroups / "outer", memory_max="max", memory_current="5", cpu_max="max 100000")
    assert available_memory_bytes(cgroups, cgroups.parent / "own") > 100 * MEBIBYTE
    assert cpu_quota(cgroups, cgroups.parent / "own") == cpu_quota(cgroups / "none", cgroups / "none")


def test_a_processor_quota_may_be_a_fraction(cgroups):
    write_cgroup(cgroups / "outer", cpu_max="50000 100000")
    assert cpu_quota(cgroups, cgroups.parent / "own") == 0.5


def test_the_quota_is_never_more_than_the_processors(cgroups):
    write_cgroup(cgroups / "outer", cpu_max="100000000 100000")
    assert cpu_quota(cgroups, cgroups.parent / "own") <= psutil.cpu_count()


@pytest.fixture
def separate_cgroups(tmp_path):
    """Version 1: a tree for each controller, as many container hosts still have it."""
    (tmp_path / "own").write_text("4:memory:/job\n2:cpuacct,cpu:/job\n1:name=systemd:/\n0::/\n")
    return tmp_path / "cgroup"


def write_limits(folder, **files):
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(f"{text}\n")


def test_a_limit_of_version_one_holds_as_well(separate_cgroups):
    write_limits(
        separate_cgroups / "memory" / "job",
        memory_limit_in_bytes=100 * MEBIBYTE,
        memory_usage_in_bytes=60 * MEBIBYTE,
        memory_stat=f"inactive_file 1\ntotal_inactive_file {25 * MEBIBYTE}",
    )
    write_limits(separate_cgroups / "cpu" / "job", cpu_cfs_quota_us=50_000, cpu_cfs_period_us=100_000)
    own = separate_cgroups.parent / "own"
    assert available_memory_bytes(separate_cgroups, own) == 65 * MEBIBYTE
    assert cpu_quota(separate_cgroups, own) == 0.5


def test_a_group_of_version_one_without_limits_changes_nothing(separate_cgroups):
    write_limits(separate_cgroups / "memory", memory_limit_in_bytes=(1 << 63) - 4096, memory_usage_in_bytes=5)
    write_limits(separate_cgroups / "cpu", cpu_cfs_quota_us=-1, cpu_cfs_period_us=100_000)
    own = separate_cgroups.parent / "own"
    assert available_memory_bytes(separate_cgroups, own) > 100 * MEBIBYTE
    assert cpu_quota(separate_cgroups, own) == cpu_quota(separate_cgroups / "none", own)


@pytest.mark.processes
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_freed_memory_is_used_again_without_new_pages():
    program = """
import resource, sys
import numpy
from tunesmith.runtime.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def touch():
    blocks = [numpy.ones(20 * 2**17) for _ in range(4)]  # 20 MiB each
touch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    touch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

    def count_page_faults(choice: str) -> int:
        # Numpy asks the kernel for huge pages otherwise, which hides what is counted here.
        environment = {**os.environ, "NUMPY_MADVISE_HUGEPAGE": "0"}
        return int(
            subprocess.run(
                [sys.executable, "-c", program, choice], check=True, capture_output=True, text=True, env=environment
            ).stdout
        )

    assert count_page_faults("keep") < 1_000
    assert count_page_faults("return") > 100_000


@pytest.mark.parametrize(
    ("free_gib", "largest_allowed_mib", "kept_mib"),
    [(16, 4096, 96), (16, 32, 32), (4, 4096, 32)],
    ids=["ample memory", "an older glibc", "little memory"],
)
def test_blocks_of_logits_are_kept_where_there_is_room_for_gaps(monkeypatch, free_gib, largest_allowed_mib, kept_mib):
    accepted = {}

    def mallopt(parameter: int, value: int) -> int:
        if parameter == -3 and value > largest_allowed_mib * MEBIBYTE:
            return 0
        accepted[parameter] = value
        return 1

    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(memory, "available_memory_bytes", lambda: free_gib * 1024 * MEBIBYTE)
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    assert keep_freed_memory()
    assert accepted == {-3: kept_mib * MEBIBYTE, -1: 2**31 - 1}


def test_other_c_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not keep_freed_memory()
