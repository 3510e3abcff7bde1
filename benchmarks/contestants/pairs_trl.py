"""The DPO job in TRL: `DPOTrainer` with conversational pairs; its reference is the model without the adapter."""

import json
from pathlib import Path
from typing import Any

from benchmarks.contestants.job import Job
from benchmarks.contestants.meter import StepClock
from benchmarks.contestants.pairs import PairMeter

_ROLES = {"human": "user", "gpt": "assistant", "system": "system"}


def main() -> None:
    """Train the job and print the measurements."""
    job = Job.from_command_line()
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoTokenizer, Trainer
    from trl import DPOConfig, DPOTrainer

    meter = PairMeter(job)
    meter.watch(Trainer)
    checkpointing = {} if job.checkpointing == "auto" else {"gradient_checkpointing": job.checkpointing == "on"}
    trainer = DPOTrainer(
        model=job.model,
        args=DPOConfig(
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
        train_dataset=Dataset.from_list([_convert_row(row) for row in json.loads(Path(job.rows).read_text())]),
        processing_class=AutoTokenizer.from_pretrained(job.model),
        peft_config=LoraConfig(
            r=job.lora_rank, lora_alpha=2 * job.lora_rank, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
        callbacks=[StepClock()],
    )
    trainer.train()
    meter.print_report()


def _convert_row(row: dict[str, Any]) -> dict[str, list[dict[str, str]]]:
    return {
        "prompt": [_convert_message(message) for message in row["conversations"]],
        "chosen": [_convert_message(row["chosen"])],
        "rejected": [_convert_message(row["rejected"])],
    }


def _convert_message(message: dict[str, str]) -> dict[str, str]:
    return {"role": _ROLES[message["from"]], "content": message["value"]}


if __name__ == "__main__":
    main()
