"""Chunks over worker processes, results in the order of the chunks.

A fast tokenizer runs one chunk on all cores by itself. Workers pay off where Python is the larger part, as with foreign
templates that are rendered prefix by prefix; `worker_choice` finds out.
"""

import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from tunesmith.errors import DataError

Chunk = TypeVar("Chunk")
Result = TypeVar("Result")

_CHUNKS_AHEAD = 2
"""Chunks per worker that are read before the first is needed: enough to keep it busy, few enough for memory."""


def over_workers(chunks: Iterable[Chunk], work: Callable[[Chunk], Result], num_workers: int) -> Iterator[Result]:
    """Apply a function to chunks in worker processes.

    Workers are started afresh rather than forked: this process has threads (of tokenizers, torch and Arrow) whose locks
    a fork would copy in whatever state they are.

    Args:
        chunks: Read as needed, a few ahead.
        work: Picklable; sent to each worker once.
        num_workers: Processes to start.

    Yields:
        One result per chunk, in order.

    Raises:
        DataError: A worker was killed. Errors of `work` itself are raised as they are, with the worker's traceback.
    """
    executor = ProcessPoolExecutor(
        num_workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(pickle.dumps(work),),
    )
    pending: deque[Future[Any]] = deque()
    try:
        for chunk in chunks:
            pending.append(executor.submit(_run, chunk))
            if len(pending) >= num_workers * _CHUNKS_AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise DataError(
            f"One of {num_workers} preprocessing workers died without an error of its own, most likely killed for lack "
            "of memory. Lower preprocessing_num_workers or preprocessing_batch_size. In a script of your own, call the "
            "training from under `if __name__ == '__main__':`, since workers import the script."
        ) from error
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


_payload = b""
_work: Callable[[Any], Any] | None = None


def _start_worker(payload: bytes) -> None:
    global _payload  # noqa: PLW0603 - the one place of a worker process that outlives a call
    _payload = payload
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the workers are the parallelism
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when its parent is gone, however it ended: it would wait for work, and keep its memory, for ever.

    The pipe that work comes through does not tell: the other workers hold its other end, too.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None, "workers are started by a parent"
    parent.join()
    os._exit(1)


def _run(chunk: Any) -> Any:
    global _work  # noqa: PLW0603
    if _work is None:  # unpickled here and not at the start, where an error would only be printed
        _work = pickle.loads(_payload)  # noqa: S301 - bytes of the parent process
    return _work(chunk)
