"""The DPO job in LLaMA-Factory: what its command line runs, called in this process so that it can be watched."""

import json
from pathlib import Path

from benchmarks.contestants.job import Job
from benchmarks.contestants.llamafactory import build_arguments
from benchmarks.contestants.meter import StepClock
from benchmarks.contestants.pairs import PairMeter


def main() -> None:
    """Train the job and print the measurements."""
    job = Job.from_command_line()
    from llamafactory.train.tuner import run_exp
    from transformers import Trainer

    meter = PairMeter(job)
    meter.watch(Trainer)
    arguments = build_arguments(job) | {"stage": "dpo", "pref_loss": "sigmoid", "pref_beta": 0.1}
    entry = {"file_name": "rows.json", "formatting": "sharegpt", "ranking": True}
    entry["columns"] = {"messages": "conversations", "chosen": "chosen", "rejected": "rejected"}  # type: ignore[assignment]
    catalogue = Path(str(arguments["dataset_dir"])) / "dataset_info.json"
    catalogue.write_text(json.dumps({"rows": entry}), encoding="utf-8")
    run_exp(args=arguments, callbacks=[StepClock()])
    meter.print_report()


if __name__ == "__main__":
    main()
