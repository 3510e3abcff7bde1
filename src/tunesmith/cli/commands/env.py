"""`tunesmith env`: versions and hardware, ready to paste into a bug report."""

import os
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import tunesmith
from tunesmith.cli import output
from tunesmith.cli.flags import check_no_words

HELP = """
usage: tunesmith env

Print the versions of the program, Python and the libraries it stands on, and what the machine offers:
processors, memory, accelerators. Nothing secret is printed; paste it into a bug report.
"""

PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "peft",
    "accelerate",
    "datasets",
    "pyarrow",
    "numpy",
    "safetensors",
)
OPTIONAL_PACKAGES = (
    "gguf",
    "matplotlib",
    "sacrebleu",
    "rouge-score",
    "sentencepiece",
    "modelscope",
    "tensorboard",
)


def run(arguments: Sequence[str]) -> int:
    """Print one `name: value` line per fact."""
    check_no_words("env", arguments)
    for name, value in [*_software(), *_machine()]:
        output.show_text(f"{name}: {value}")
    return 0


def _software() -> list[tuple[str, str]]:
    facts = [
        ("tunesmith", tunesmith.__version__),
        ("python", f"{platform.python_version()} ({sys.executable})"),
        ("system", platform.platform()),
    ]
    return facts + [(name, _installed_version(name)) for name in (*PACKAGES, *OPTIONAL_PACKAGES)]


def _installed_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _machine() -> list[tuple[str, str]]:
    import torch

    from tunesmith.runtime.memory import available_memory_bytes, cpu_quota

    facts = [
        ("processors", f"{cpu_quota():g} usable of {os.cpu_count()}"),
        ("memory free", f"{available_memory_bytes() / 2**30:.1f} GiB"),
        ("torch threads", str(torch.get_num_threads())),
    ]
    if not torch.cuda.is_available():
        return [*facts, ("accelerators", "none")]
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        facts.append((f"accelerator {index}", f"{device.name}, {device.total_memory / 2**30:.0f} GiB"))
    return facts
