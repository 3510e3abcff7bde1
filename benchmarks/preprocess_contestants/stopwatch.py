"""What is measured, the same for every tool: the time from rows in a file to rows that a trainer can use.

Imports, the loading of the tokenizer and the building of a trainer are outside.
"""

import json
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class PreprocessJob:
    """What is prepared."""

    tokenizer: str
    """Folder of the tokenizer, with the chat template that all tools print."""

    rows: str
    """JSON file of alpaca rows."""

    conversations: str
    """JSON Lines file of the same rows as prompts and completions, the form that TRL reads."""

    folder: str
    """Empty folder for caches and output."""

    cutoff_len: int
    template: str
    """Name of the template in our catalogue and in LLaMA-Factory's."""

    @classmethod
    def from_command_line(cls) -> "PreprocessJob":
        """Return the job whose JSON file is named on the command line."""
        return cls(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))

    def save(self, path: Path) -> None:
        """Write the job where `from_command_line` reads it."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


@dataclass
class Stopwatch:
    """Takes wall and processor time, that of ended child processes included."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    notes: dict[str, object] = field(default_factory=dict)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time of the block."""
        wall, cpu = time.perf_counter(), _cpu_seconds()
        yield
        self.wall_seconds += time.perf_counter() - wall
        self.cpu_seconds += _cpu_seconds() - cpu

    def report(self, *, rows: int, tokens: int, trained_tokens: int | None) -> None:
        """Print the measurement as the last line, where the benchmark looks for it."""
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        result = {
            "rows": rows,
            "tokens": tokens,
            "trained_tokens": trained_tokens,
            "wall_seconds": self.wall_seconds,
            "cpu_seconds": self.cpu_seconds,
            "peak_memory_bytes": peak_bytes,
        }
        sys.stdout.flush()
        print("\n" + json.dumps(result), flush=True)


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
