"""The DPO job in Tunesmith: what `tunesmith train` runs, called in this process so that it can be watched."""

from benchmarks.contestants.job import Job
from benchmarks.contestants.pairs import PairMeter
from benchmarks.contestants.tunesmith import build_settings, train

SHARING: dict[str, dict[str, object]] = {
    "auto": {},
    "shared": {"prefix_sharing": True},
    "plain": {"prefix_sharing": False},
}


def main() -> None:
    """Train the job and print the measurements."""
    job = Job.from_command_line()
    settings = build_settings(job) | SHARING[job.layout]
    settings |= {
        "stage": "dpo",
        "dataset_info": {"rows": {"file_name": job.rows, "formatting": "sharegpt", "ranking": True}},
        # Beforehand it would be computed outside of the measured steps, and the others compute it inside.
        "precompute_reference": False,
    }
    train(job, PairMeter(job), settings)


if __name__ == "__main__":
    main()
