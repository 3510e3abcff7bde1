import os
import signal

import pytest
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils import MP_STATUS_CHECK_INTERVAL, signal_handling

from tunesmith.runtime.child_signals import kill_workers, start_workers

pytestmark = pytest.mark.processes


class Numbers(Dataset):
    def __init__(self, deadly=-1):
        self.deadly = deadly

    def __len__(self):
        return 4

    def __getitem__(self, row):
        if row == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return row


def loader_of(dataset, **options):
    return DataLoader(dataset, batch_size=2, num_workers=2, collate_fn=list, **options)


@pytest.fixture(params=["default", "another loader's"])
def handler(request):
    """How the process deals with dead children: as it began, or as any loader that was started before leaves it."""
    before = signal.getsignal(signal.SIGCHLD)
    chosen = signal.SIG_DFL
    if request.param != "default":

        def chosen(*_):
            signal_handling._error_if_any_worker_fails()

    signal.signal(signal.SIGCHLD, chosen)
    yield chosen
    signal.signal(signal.SIGCHLD, before)


def test_the_death_of_a_worker_interrupts_nothing(handler):
    batches, (killed, other) = start_workers(loader_of(Numbers(deadly=0)))
    killed.join()  # an interruption would come here
    assert killed.exitcode == -signal.SIGKILL
    kill_workers([killed, other])
    other.join()
    assert signal.getsignal(signal.SIGCHLD) is handler
    del batches


def test_kept_workers_go_on_to_the_next_epoch(handler):
    loader = loader_of(Numbers(), persistent_workers=True)
    for num_started in (2, 0):
        batches, workers = start_workers(loader)
        assert list(batches) == [[0, 1], [2, 3]]
        assert len(workers) == num_started
    assert signal.getsignal(signal.SIGCHLD) is handler


def test_a_loader_looks_for_its_workers_every_few_seconds():
    assert MP_STATUS_CHECK_INTERVAL <= 5
