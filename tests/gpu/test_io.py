"""The IO engine on a GPU: time by events, copies on a stream of their own, and memory that runs out."""

import time

import pytest
import torch

from tests.tiny.models import tiny_model
from tests.tiny.training import largest_difference, tiny_trainer, uneven_rows, weights
from tunesmith.data.collators import build_collator
from tunesmith.data.loading.samplers import SequentialSampler
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.io.device_copies import DeviceCopies
from tunesmith.training.io.settings import LoaderPolicy, LoaderSettings
from tunesmith.training.loaders import ProcessBatches, build_loader
from tunesmith.training.monitoring.account import DATA, CudaEvents, TimeAccount

pytestmark = pytest.mark.gpu


def test_time_of_the_device_is_measured_without_waiting_for_it(gpu):
    account = TimeAccount(events=CudaEvents())
    matrix = torch.ones(4096, 4096, device=gpu)
    torch.mm(matrix, matrix)
    torch.cuda.synchronize()
    account.take()
    account.enter("forward")
    begin = time.perf_counter()
    for _ in range(100):
        torch.mm(matrix, matrix)
    account.enter("backward")
    account.enter("other")
    asked = time.perf_counter() - begin
    torch.cuda.synchronize()
    whole = time.perf_counter() - begin
    _, _, forward, backward, _, _ = account.take()
    assert asked < 0.5 * whole  # nothing waited for the device
    assert forward == pytest.approx(whole, rel=0.2)
    assert backward < 0.1 * whole


def test_the_shares_of_a_run_add_up_to_its_time(gpu, tmp_path):
    trainer = tiny_trainer(tmp_path, uneven_rows(64), model=tiny_model("llama"), use_cpu=False, num_train_epochs=4)
    trainer.train()
    total = sum(trainer.meter.phase_seconds.seconds[0])
    assert total == pytest.approx(trainer.meter.busy_seconds, rel=0.2)


def test_a_copy_on_another_stream_holds_the_batch(gpu):
    copies = DeviceCopies(gpu)
    batch = {"input_ids": torch.arange(1_000_000).pin_memory(), "row_ids": torch.zeros(1), "max_length_q": 7}
    assert copies.take(batch) == {}
    copies.start(batch)
    copied = copies.take(batch)
    assert copied.keys() == {"input_ids"}
    assert torch.equal(copied["input_ids"].cpu(), batch["input_ids"])
    copies.start(batch)
    copies.clear()
    assert copies.take(batch) == {}


def test_a_copy_runs_beside_the_computation(gpu):
    copies = DeviceCopies(gpu)
    batch = {"pixels": torch.ones(64 * 2**20).pin_memory()}  # 256 MB: some ten milliseconds
    matrix = torch.ones(4096, 4096, device=gpu)

    def compute():
        for _ in range(20):
            torch.mm(matrix, matrix)

    def copy():
        copies.start(batch)
        copies.take(batch)

    def seconds(*parts):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for part in parts:
            part()
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    seconds(compute, copy)
    apart = seconds(compute), seconds(copy)
    assert seconds(compute, copy) < sum(apart) - 0.5 * min(apart)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_arrive_in_page_locked_memory(gpu, workers):
    rows = uneven_rows(8)
    policy = LoaderPolicy(start=LoaderSettings(workers), pins_memory=True)
    batches = ProcessBatches(SequentialSampler(len(rows)), 2, Ranks())
    loader = build_loader(rows, build_collator("flat", pad_token_id=0), batches, policy=policy)
    for batch in loader:
        assert batch["input_ids"].is_pinned()
        assert batch["cu_seq_lens_q"].is_pinned()
    loader.feed.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_looking_ahead_changes_no_number(gpu, tmp_path, workers):
    found = []
    for looks_ahead in (True, False):
        plan = {"loading": LoaderPolicy(start=LoaderSettings(workers), pins_memory=True)}
        model = tiny_model("llama")
        trainer = tiny_trainer(
            tmp_path, uneven_rows(40), model=model, use_cpu=False, gradient_accumulation_steps=2, plan=plan
        )
        if not looks_ahead:
            trainer._copies = None
        trainer.train()
        found.append(weights(model))
    assert largest_difference(*found) < 1e-6


class SlowRows(list):
    """Rows that take 20 ms each."""

    def __getitem__(self, row):
        time.sleep(0.02)
        return super().__getitem__(row)


def test_waiting_is_seen_although_batches_are_fetched_while_the_device_works(gpu, tmp_path):
    trainer = tiny_trainer(tmp_path, uneven_rows(60), model=tiny_model("llama"), use_cpu=False)
    trainer.train_dataset = SlowRows(trainer.train_dataset)
    trainer.train()
    seconds = trainer.meter.phase_seconds.seconds[0]
    assert seconds[DATA] > 0.5 * 60 * 0.02
    assert min(seconds) >= 0


def test_a_step_that_does_not_fit_is_done_in_parts(gpu, tmp_path, caplog):
    rows = [row for row in uneven_rows(4000) if len(row["input_ids"]) == 20][:192]
    found = []
    for is_limited in (False, True):
        model = tiny_model("llama", hidden_size=512, intermediate_size=4096)
        trainer = tiny_trainer(
            tmp_path, rows, model=model, use_cpu=False, per_device_train_batch_size=96, learning_rate=0.01
        )
        if is_limited:
            torch.cuda.empty_cache()
            # What one whole micro-batch takes is not known here: the least that the weights and gradients leave.
            held = 3 * sum(parameter.numel() * 4 for parameter in model.parameters())
            allowed = torch.cuda.memory_allocated(gpu) + held + 60_000_000
            torch.cuda.set_per_process_memory_fraction(allowed / torch.cuda.mem_get_info(gpu)[1], gpu)
        trainer.train()
        found.append(weights(model))
    assert largest_difference(*found) < 1e-4
    assert "with the same rows and the same gradient" in caplog.text


def test_an_evaluation_that_does_not_fit_is_measured_in_parts(gpu, tmp_path, caplog):
    rows = uneven_rows(4000)
    model = tiny_model("llama", hidden_size=512, intermediate_size=4096)
    trainer = tiny_trainer(tmp_path, rows[:4], model=model, evals=rows, use_cpu=False, per_device_eval_batch_size=4000)
    expected = trainer.evaluate()["eval_loss"]
    torch.cuda.empty_cache()
    # The middle of an MLP alone takes 4000 x 20 x 4096 x 4 bytes.
    allowed = torch.cuda.memory_allocated(gpu) + 1_000_000_000
    torch.cuda.set_per_process_memory_fraction(allowed / torch.cuda.mem_get_info(gpu)[1], gpu)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-4)
    assert "of the evaluation: it is measured in" in caplog.text
