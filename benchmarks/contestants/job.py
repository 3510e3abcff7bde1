"""What every contestant is asked to train."""

import ctypes
import json
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Job:
    """What is trained. The same for all contestants of a benchmark, but for `checkpointing` and `layout`."""

    model: str
    rows: str
    """JSON file of alpaca rows, in training order."""
    output: str
    steps: int
    warmup_steps: int
    batch: int
    """Rows per optimiser step."""
    cutoff_len: int
    checkpointing: str
    """`on`, `off`, or `auto` for the tool's own default."""
    layout: str = "auto"
    """How rows become batches, for the benchmarks that compare that; `auto` is the tool's own default."""
    lora_rank: int = 8
    learning_rate: float = 1e-4
    seed: int = 0

    @classmethod
    def from_command_line(cls) -> "Job":
        """Return the job that the command line names; from here on this process ends with the runner."""
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        return cls(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))

    def save(self, path: Path) -> None:
        """Write the job where `from_command_line` reads it."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
