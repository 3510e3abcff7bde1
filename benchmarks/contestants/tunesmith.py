"""The job in Tunesmith: what `tunesmith train` runs, called in this process so that it can be watched."""

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
    from tunesmith.config import load_config
    from tunesmith.data.collators import build_collator
    from tunesmith.training.assembly import assemble_trainer
    from tunesmith.training.run import prepare_parts
    from tunesmith.training.trainer import ObjectiveTrainer

    meter = Meter(job)
    meter.watch(ObjectiveTrainer)
    parts = prepare_parts(load_config(build_settings(job)))
    trainer = assemble_trainer(parts, None).trainer
    if job.layout == "limit":  # what nobody should do, and no setting of ours offers
        trainer.data_collator = build_collator(
            "padded", pad_token_id=parts.tokenizer.pad_token_id, pad_to_multiple_of=job.cutoff_len
        )
    trainer.train()
    meter.print_report()


def build_settings(job: Job) -> dict[str, object]:
    """Return the run's settings as a configuration file would hold them."""
    return {
        "stage": "sft",
        "do_train": True,
        "model_name_or_path": job.model,
        "dataset": "rows",
        "dataset_info": {"rows": {"file_name": job.rows}},
        "cutoff_len": job.cutoff_len,
        "finetuning_type": "lora",
        "lora_target": "all",
        "lora_rank": job.lora_rank,
        "lora_alpha": 2 * job.lora_rank,
        "output_dir": job.output,
        "per_device_train_batch_size": job.batch,
        "max_steps": job.steps,
        "learning_rate": job.learning_rate,
        "gradient_checkpointing": CHECKPOINTING[job.checkpointing],
        "bf16": False,
        "disable_shuffling": True,
        "logging_steps": 1,
        "save_strategy": "no",
        "seed": job.seed,
        "use_cpu": True,
        "overwrite_cache": True,
        "callbacks": ["benchmarks.contestants.meter:StepClock"],
    } | LAYOUTS[job.layout]


if __name__ == "__main__":
    main()
