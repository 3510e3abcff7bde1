"""What a measurement was taken on, so that two of them can be compared honestly."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("torch", "transformers", "tokenizers", "peft", "accelerate", "trl", "datasets")


def count_cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0))


def describe_machine() -> dict[str, object]:
    """Return processor, cores, memory in GiB, load average and package versions of this environment."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor_name(),
        "cores": count_cores(),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "load_average": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": package_versions(PACKAGES),
    }


def package_versions(names: tuple[str, ...]) -> dict[str, str]:
    """Return the installed version of each package that is installed."""
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def render_machine(machine: dict[str, object]) -> str:
    """Return the description as one line, with a warning when somebody else is using the machine."""
    packages = machine["packages"]
    assert isinstance(packages, dict)
    line = (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB; "
        f"Python {machine['python']}, " + ", ".join(f"{name} {number}" for name, number in packages.items())
    )
    load = machine["load_average"]
    assert isinstance(load, float)
    if load > 0.5:
        line += f"\nload average is {load} at the start: wall times are not comparable, CPU seconds are"
    return line


def _processor_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
