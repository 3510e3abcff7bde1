"""The job in LLaMA-Factory: what its command line runs, called in this process so that it can be watched."""

import json
import shutil
from pathlib import Path

from benchmarks.contestants.job import Job
from benchmarks.contestants.meter import Meter, StepClock

# Its own default ends with a full stop, which the model's chat template has not.
SMOLLM2_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def main() -> None:
    """Train the job and print the measurements."""
    job = Job.from_command_line()
    from llamafactory.train.tuner import run_exp
    from transformers import Trainer

    meter = Meter(job)
    meter.watch(Trainer)
    run_exp(args=build_arguments(job), callbacks=[StepClock()])
    meter.print_report()


def build_arguments(job: Job) -> dict[str, object]:
    """Write the data set where it is looked for, and return the run's arguments."""
    folder = Path(job.output) / "data"
    folder.mkdir(parents=True)
    shutil.copy(job.rows, folder / "rows.json")
    (folder / "dataset_info.json").write_text(json.dumps({"rows": {"file_name": "rows.json"}}), encoding="utf-8")
    arguments: dict[str, object] = {
        "stage": "sft",
        "do_train": True,
        "model_name_or_path": job.model,
        "dataset_dir": str(folder),
        "dataset": "rows",
        "template": "smollm2",
        "default_system": SMOLLM2_SYSTEM,
        "cutoff_len": job.cutoff_len,
        "finetuning_type": "lora",
        "lora_target": "all",
        "lora_rank": job.lora_rank,
        "lora_alpha": 2 * job.lora_rank,
        "output_dir": job.output,
        "per_device_train_batch_size": job.batch,
        "max_steps": job.steps,
        "learning_rate": job.learning_rate,
        "disable_shuffling": True,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "seed": job.seed,
        "use_cpu": True,
        "overwrite_cache": True,
    }
    if job.checkpointing != "auto":
        arguments["disable_gradient_checkpointing"] = job.checkpointing == "off"
    return arguments


if __name__ == "__main__":
    main()
