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

    def to_settings(self) -> dict[str, object]:
        """Return the settings that LLaMA-Factory and Tunesmith spell the same."""
        return {
            "do_train": True,
            "model_name_or_path": self.model,
            "dataset": "rows",
            "cutoff_len": self.cutoff_len,
            "finetuning_type": "lora",
            "lora_target": "all",
            "lora_rank": self.lora_rank,
            "lora_alpha": 2 * self.lora_rank,
            "output_dir": self.output,
            "per_device_train_batch_size": self.batch,
            "max_steps": self.steps,
            "learning_rate": self.learning_rate,
            "disable_shuffling": True,
            "logging_steps": 1,
            "save_strategy": "no",
            "seed": self.seed,
            "use_cpu": True,
            "overwrite_cache": True,
        }

    def save(self, path: Path) -> None:
        """Write the job where `from_command_line` reads it."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
