"""The DPO job in LLaMA-Factory: what its command line runs, called in this process so that it can be watched."""

from benchmarks.contestants.job import Job
from benchmarks.contestants.llamafactory import train
from benchmarks.contestants.pairs import PairMeter

_ENTRY = {
    "formatting": "sharegpt",
    "ranking": True,
    "columns": {"messages": "conversations", "chosen": "chosen", "rejected": "rejected"},
}


def main() -> None:
    """Train the job and print the measurements."""
    job = Job.from_command_line()
    train(job, PairMeter(job), {"stage": "dpo", "pref_loss": "sigmoid", "pref_beta": 0.1}, _ENTRY)


if __name__ == "__main__":
    main()
