"""Run in a process of its own: train with four workers on 600 small files, of which at most 256 may be open."""

import resource
import sys
from pathlib import Path

from tests.tiny.runs import tiny_run
from tunesmith.runtime.logging import configure_logging
from tunesmith.runtime.open_files import count_open_files
from tunesmith.training.run import run_training


def main(folder: str) -> None:
    """Train one epoch and say how many rows there were, and how many files were open at the end."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    configure_logging("INFO")
    place = Path(folder)
    config = tiny_run(
        place, dataset="many", dataloader_num_workers=4, dataloader_prefetch_factor=16, per_device_train_batch_size=50
    )
    result = run_training(config)
    sys.stdout.write(
        f"steps {result.state.global_step}, rows {len(result.trainer.train_dataset)}, open {count_open_files()}\n"
    )


if __name__ == "__main__":
    main(sys.argv[1])
