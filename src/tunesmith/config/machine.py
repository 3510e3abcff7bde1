"""Whether this machine has an accelerator, found out from the system's files alone: asking torch takes seconds."""

import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Accelerator = Literal["none", "nvidia", "amd", "ascend", "apple"]

_HIDING = {
    "nvidia": ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    "amd": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
}
_NODES = {
    "nvidia": ("proc/driver/nvidia/gpus/*", "dev/nvidia[0-9]*", "dev/dxg"),
    "amd": ("dev/kfd",),
    "ascend": ("dev/davinci[0-9]*",),
}


@dataclass(frozen=True, slots=True)
class Machine:
    """What the rules ask about this machine."""

    accelerator: Accelerator
    reason: str
    """How that was found out, for messages."""

    @property
    def has_gpu(self) -> bool:
        """Whether a GPU that torch calls `cuda` is there and visible."""
        return self.accelerator in ("nvidia", "amd")


def find_machine(environ: Mapping[str, str], root: Path = Path("/")) -> Machine:
    """Look for an accelerator.

    Args:
        environ: Variables that can hide devices.
        root: Folder in which `dev` and `proc` are looked up.
    """
    for accelerator, patterns in _NODES.items():
        if not any(any(root.glob(pattern)) for pattern in patterns):
            continue
        for variable in _HIDING.get(accelerator, ()):
            if environ.get(variable, "0").strip() in ("", "-1", "void", "none"):
                return Machine("none", f"{variable} is '{environ[variable]}', which hides the GPU")
        return Machine(accelerator, "its device files are there")  # type: ignore[arg-type]
    if sys.platform == "darwin" and platform.machine() == "arm64":
        return Machine("apple", "this is a Mac with Apple silicon")
    return Machine("none", "no GPU was found on this machine")
