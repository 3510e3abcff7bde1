"""The worker processes of a loader, to be asked how they ended and what they were at."""

from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess

from tunesmith.training.io.making import RowMarks


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """Workers by number, and the row that each was at last."""

    processes: Sequence[BaseProcess]
    marks: RowMarks

    def __len__(self) -> int:
        """Return the number of workers."""
        return len(self.processes)

    def find_dead(self) -> tuple[int, BaseProcess] | None:
        """Return the first worker that ended although nobody asked it to, with its number."""
        for number, worker in enumerate(self.processes):
            worker.join(timeout=0)
            if worker.exitcode is not None:
                return number, worker
        return None

    def find_row(self, worker: int) -> int | None:
        """Return the row that a worker was making last."""
        return self.marks.find(worker)
