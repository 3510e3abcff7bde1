"""The job in Tunesmith: what `tunesmith train` runs, called in this process so that it can be watched."""

from collections.abc import Mapping

from benchmarks.contestants.job import Job
from benchmarks.contestants.meter import Meter

CHECKPOINTING = {"on": True, "off": False, "auto": "auto"}

# How rows become batches. `auto` is what a user gets who sets nothing.
LAYOUTS: dict[str, dict[str, object]] = {
    "auto": {},
    "padded": {"padding_free": False},
    "limit": {"padding_free": False},
    "grouped": {
        "padding_free": False,
        "train_sampling_strategy": "group_by_length",
        "disable_shuffling": False,
    },
    "packed": {"packing": True, "disable_shuffling": False},
}


def main() -> None:
    """Train the job and print the measurements."""
    job = Job.from_command_line()
    train(job, Meter(job), build_settings(job) | LAYOUTS[job.layout])


def train(job: Job, meter: Meter, settings: Mapping[str, object]) -> None:
    """Train the job and print the measurements.

    Args:
        job: What to train.
        meter: What watches it.
        settings: Of the run, see `build_settings`.
    """
    from tunesmith.config import load_config
    from tunesmith.data.collators import build_collator
    from tunesmith.training.assembly import assemble_trainer
    from tunesmith.training.run import prepare_parts
    from tunesmith.training.trainer import ObjectiveTrainer

    meter.watch(ObjectiveTrainer)
    parts = prepare_parts(load_config(settings))
    trainer = assemble_trainer(parts, None).trainer
    if job.layout == "limit":  # what nobody should do, and no setting of ours offers
        trainer.data_collator = build_collator(
            "padded", pad_token_id=parts.tokenizer.pad_token_id, pad_to_multiple_of=job.cutoff_len
        )
    trainer.train()
    meter.print_report()


def build_settings(job: Job) -> dict[str, object]:
    """Return the run's settings as a configuration file would hold them."""
    return job.to_settings() | {
        "stage": "sft",
        "dataset_info": {"rows": {"file_name": job.rows}},
        "gradient_checkpointing": CHECKPOINTING[job.checkpointing],
        "bf16": False,
        "callbacks": ["benchmarks.contestants.meter:StepClock"],
    }


if __name__ == "__main__":
    main()
