"""The job in TRL: `SFTTrainer` with prompt/completion rows, which is its way to learn answers only."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.contestants.job import Job
from benchmarks.contestants.meter import Meter, StepClock


def main() -> None:
    """Train the job and print the measurements."""
    job = Job.from_command_line()
    from trl import SFTConfig, SFTTrainer

    train(job, Meter(job), SFTTrainer, SFTConfig, _convert_row)


def train(
    job: Job,
    meter: Meter,
    trainer_class: Callable[..., Any],
    config_class: Callable[..., Any],
    convert_row: Callable[[Any], dict[str, Any]],
) -> None:
    """Train the job with one of TRL's trainers and print the measurements.

    Args:
        job: What to train.
        meter: What watches it.
        trainer_class: The trainer.
        config_class: Its settings.
        convert_row: Makes a row of the job one that the trainer knows.
    """
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoTokenizer, Trainer

    meter.watch(Trainer)
    checkpointing = {} if job.checkpointing == "auto" else {"gradient_checkpointing": job.checkpointing == "on"}
    trainer = trainer_class(
        model=job.model,
        args=config_class(
            output_dir=job.output,
            max_length=job.cutoff_len,
            per_device_train_batch_size=job.batch,
            max_steps=job.steps,
            learning_rate=job.learning_rate,
            train_sampling_strategy="sequential",
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            seed=job.seed,
            use_cpu=True,
            bf16=False,
            model_init_kwargs={"dtype": "float32"},
            **checkpointing,
        ),
        train_dataset=Dataset.from_list([convert_row(row) for row in json.loads(Path(job.rows).read_text())]),
        processing_class=AutoTokenizer.from_pretrained(job.model),
        peft_config=LoraConfig(
            r=job.lora_rank, lora_alpha=2 * job.lora_rank, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
        callbacks=[StepClock()],
    )
    trainer.train()
    meter.print_report()


def _convert_row(row: dict[str, str]) -> dict[str, list[dict[str, str]]]:
    question = f"{row['instruction']}\n{row['input']}" if row["input"] else row["instruction"]
    return {
        "prompt": [{"role": "user", "content": question}],
        "completion": [{"role": "assistant", "content": row["output"]}],
    }


if __name__ == "__main__":
    main()
