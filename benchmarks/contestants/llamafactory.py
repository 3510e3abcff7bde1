"""The job in LLaMA-Factory: what its command line runs, called in this process so that it can be watched."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from benchmarks.contestants.job import Job
from benchmarks.contestants.meter import Meter, StepClock

# Its own default ends with a full stop, which the model's chat template has not.
SMOLLM2_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def main() -> None:
    """Train the job and print the measurements."""
    job = Job.from_command_line()
    train(job, Meter(job), {"stage": "sft"}, {})


def train(job: Job, meter: Meter, changes: Mapping[str, object], entry: Mapping[str, object]) -> None:
    """Train the job and print the measurements.

    Args:
        job: What to train.
        meter: What watches it.
        changes: Arguments of the stage.
        entry: What its `dataset_info.json` says of the rows besides their file.
    """
    from llamafactory.train.tuner import run_exp
    from transformers import Trainer

    meter.watch(Trainer)
    folder = Path(job.output) / "data"
    folder.mkdir(parents=True)
    shutil.copy(job.rows, folder / "rows.json")
    catalogue = {"rows": {"file_name": "rows.json", **entry}}
    (folder / "dataset_info.json").write_text(json.dumps(catalogue), encoding="utf-8")
    run_exp(args={**_build_arguments(job, folder), **changes}, callbacks=[StepClock()])
    meter.print_report()


def _build_arguments(job: Job, folder: Path) -> dict[str, object]:
    arguments: dict[str, object] = job.to_settings() | {
        "dataset_dir": str(folder),
        "template": "smollm2",
        "default_system": SMOLLM2_SYSTEM,
        "report_to": "none",
    }
    if job.checkpointing != "auto":
        arguments["disable_gradient_checkpointing"] = job.checkpointing == "off"
    return arguments


if __name__ == "__main__":
    main()
