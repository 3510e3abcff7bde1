"""The DPO job in Tunesmith: what `tunesmith train` runs, called in this process so that it can be watched."""

from benchmarks.contestants.job import Job
from benchmarks.contestants.pairs import PairMeter
from benchmarks.contestants.tunesmith import build_settings

SHARING: dict[str, dict[str, object]] = {
    "auto": {},
    "shared": {"prefix_sharing": True},
    "plain": {"prefix_sharing": False},
}


def main() -> None:
    """Train the job and print the measurements."""
    job = Job.from_command_line()
    from tunesmith.config import load_config
    from tunesmith.training.assembly import assemble_trainer
    from tunesmith.training.run import prepare_parts
    from tunesmith.training.trainer import ObjectiveTrainer

    meter = PairMeter(job)
    meter.watch(ObjectiveTrainer)
    settings = build_settings(Job(**{**vars(job), "layout": "auto"})) | SHARING[job.layout]
    settings |= {
        "stage": "dpo",
        "dataset_info": {"rows": {"file_name": job.rows, "formatting": "sharegpt", "ranking": True}},
        # Beforehand it would be computed outside of the measured steps, and the others compute it inside.
        "precompute_reference": False,
    }
    trainer = assemble_trainer(prepare_parts(load_config(settings)), None).trainer
    trainer.train()
    meter.print_report()


if __name__ == "__main__":
    main()
