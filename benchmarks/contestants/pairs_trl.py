"""The DPO job in TRL: `DPOTrainer` with conversational pairs; its reference is the model without the adapter."""

from typing import Any

from benchmarks.contestants.job import Job
from benchmarks.contestants.pairs import PairMeter
from benchmarks.contestants.trl import train

_ROLES = {"human": "user", "gpt": "assistant", "system": "system"}


def main() -> None:
    """Train the job and print the measurements."""
    job = Job.from_command_line()
    from trl import DPOConfig, DPOTrainer

    train(job, PairMeter(job), DPOTrainer, DPOConfig, _convert_row)


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
