"""The half of the trainer that deals with batches: where they come from, and what happens to one."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tunesmith.data.batches import BOOKKEEPING_KEYS
from tunesmith.data.loading.samplers import SequentialSampler
from tunesmith.data.streaming.source import StreamSource
from tunesmith.objectives.base import Mean, Objective
from tunesmith.objectives.means import mean_tensors
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.callbacks.guards import StepRecord
from tunesmith.training.checkpoints import checkpoint_path
from tunesmith.training.io.device_copies import DeviceCopies, DeviceWork
from tunesmith.training.io.failures import FeedError
from tunesmith.training.io.feed import BatchFeed
from tunesmith.training.io.halving import (
    Halving,
    StepBatches,
    explain_lost_exchange,
    explain_single_pass,
    explain_too_long,
    lack_of_memory_told,
    release_memory,
)
from tunesmith.training.io.settings import LoaderPolicy, describe_rows_of
from tunesmith.training.loaders import ProcessBatches, build_loader
from tunesmith.training.monitoring.account import TimeAccount, find_events
from tunesmith.training.monitoring.meter import RunMeter, StepCounts, count_real_tokens
from tunesmith.training.streaming import StreamEpochs, StreamFeed
from tunesmith.training.trainer_plan import TrainerPlan


class FedTrainer(Trainer):
    """A Trainer with batches of our own making, and an account of the time that each part of a step takes."""

    objective: Objective
    plan: TrainerPlan
    meter: RunMeter
    step_record: StepRecord
    optimizer: Any
    stream: StreamFeed | None = None
    """Where the batches of training come from in a run that streams."""

    feed: BatchFeed | None = None
    """Where the batches of training come from, once it has begun."""

    step_batches: StepBatches
    halving: Halving | None = None
    """Does micro-batches in parts that do not fit into memory as a whole."""

    _copies: DeviceCopies | None = None
    """Batches on their way to the GPU; `None` without one."""

    _loss_before_step: Tensor | float = 0.0
    _ranks: Ranks
    _is_in_training_mode: bool

    def _watch_time(self) -> None:
        """Begin the account of time; called once, when the device is known."""
        self.meter.account.use_events(find_events(self.args.device))
        if self.args.device.type == "cuda":
            self._copies = DeviceCopies(self.args.device)
        self.add_callback(_StepBorders(self.meter.account))

    def _open_stream(self) -> None:
        """Begin the stream of the plan, if it has one; called once."""
        if self.plan.stream is None:
            return
        self.stream = self.build_stream(self.plan.stream, self.plan.loading)
        self.add_callback(StreamEpochs(self.stream))

    def build_stream(self, source: StreamSource, policy: LoaderPolicy) -> StreamFeed:
        """Return the batches of this process out of a stream, from its beginning."""
        return StreamFeed(
            source,
            self.data_collator,
            policy,
            batch_size=self.args.per_device_train_batch_size,
            ranks=self._ranks,
            drop_last=self.args.dataloader_drop_last,
        )

    # -- where batches come from -------------------------------------------------------------------------------------

    def get_train_dataloader(self) -> Any:
        """Return this process's batches of the training set, or of the rows that are streamed."""
        step = self.step_batches
        if self.stream is not None:
            self.halving = Halving(lambda number: step.batches[number]["stream_place"].items, self.data_collator)
            return self.stream
        if self.train_dataset is None or self.plan.sampler is None:
            raise ValueError("this trainer was made without a training set")
        batches = self.plan.token_batches or ProcessBatches(
            self.plan.sampler,
            self.args.per_device_train_batch_size,
            self._ranks,
            drop_last=self.args.dataloader_drop_last,
        )
        loader = build_loader(
            self.train_dataset,
            self.data_collator,
            batches,
            policy=self._policy_for(self.train_dataset),
            ranks=self._ranks,
            batches_per_step=self.args.gradient_accumulation_steps,
        )
        self.feed = feed = loader.feed

        def load_items(number: int) -> list[Any]:
            position = feed.position - len(step.batches) + number
            return [feed.dataset[row] for row in feed.rows_at(position)]

        self.halving = Halving(load_items, self.data_collator)
        return loader

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return this process's batches of an evaluation set, given as such or by its name."""
        if eval_dataset is None:
            eval_dataset = self.eval_dataset
        elif isinstance(eval_dataset, str):
            eval_dataset = self.eval_dataset[eval_dataset]
        batches = ProcessBatches(
            SequentialSampler(len(eval_dataset)), self.args.per_device_eval_batch_size, self._ranks
        )
        # As many workers as training has settled on; an evaluation is too short to find out a number of its own.
        start = self.plan.loading.start if self.feed is None else self.feed.settings
        policy = self._policy_for(eval_dataset, start=start, tunes_workers=False, tunes_prefetch=False)
        return build_loader(eval_dataset, self.data_collator, batches, policy=policy, ranks=self._ranks)

    def _policy_for(self, dataset: Any, **changes: Any) -> LoaderPolicy:
        """Return how batches of a data set are made ahead of time; messages name its own rows."""
        if self.plan.describe_source is not None:
            changes["describe_row"] = describe_rows_of(dataset, self.plan.describe_source)
        return replace(self.plan.loading, **changes)

    def stop_feeding(self) -> None:
        """Let the workers go; what they did stays in the record of the feed."""
        for feed in (self.feed, self.stream):
            if feed is not None:
                feed.close()

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Tensor | None]:
        """Fetch the micro-batches of one optimiser step and count its items over all of them and all processes."""
        self.meter.account.enter("data")
        batches: list[Any] = []
        failure = None
        try:
            batches.extend(itertools.islice(epoch_iterator, num_batches))
        except FeedError as error:
            failure = error
        self.meter.account.enter("other")
        if not batches and failure is None:
            return batches, None
        items = [int(self.objective.count_items(batch)) for batch in batches]
        # Without companions the sums stay here: a way to the device and back waits for all of its work.
        place = device if self.accelerator.num_processes > 1 else torch.device("cpu")
        stream = self.stream
        own = torch.tensor(
            [
                sum(items),
                sum(count_real_tokens(batch) for batch in batches),
                sum(batch["input_ids"].numel() for batch in batches),
                failure is not None,
                len(batches) if stream is None else sum(map(stream.has_rows, batches)),
            ],
            device=place,
        )
        feed = self.stream or self.feed
        with nullcontext() if feed is None else feed.watching("the batches of the other processes"):
            all_items, real, computed, failures, num_batches = self._sum_over_processes(own).tolist()
        if failures:
            self._stop_without_batches(failure)
        if not num_batches:  # the rows of all processes have ended
            self.control.should_training_stop = True
            return [], None
        if stream is not None:
            for batch in batches:
                stream.advance(batch)
        self.meter.add_step(StepCounts(all_items, real, computed))
        self.step_record.restart(items, [batch["row_ids"].tolist() for batch in batches])
        if self.objective.measures_its_own_rows and len(batches) == 1:
            self._leave_measuring_to(batches[0])
        else:
            self._measure_step(batches)
        self.step_batches.restart(batches)
        self._loss_before_step = self.meter.window_loss
        # No item at all (one-token rows) makes a loss of 0, not a division by 0.
        return batches, torch.tensor(max(1, all_items), device=device)

    def _check_fed(self, failure: FeedError | None) -> None:
        """Stop all processes after an evaluation for which one of them could not make its batches.

        Raises:
            FeedError: One could not.
        """
        place = self.args.device if self.accelerator.num_processes > 1 else torch.device("cpu")
        feed = self.stream or self.feed
        with nullcontext() if feed is None else feed.watching("the evaluation of the other processes"):
            num_failures = self._sum_over_processes(torch.tensor(int(failure is not None), device=place)).item()
        if num_failures:
            self._stop_without_batches(failure)

    def _stop_without_batches(self, failure: FeedError | None) -> NoReturn:
        """Save what the run has learnt and stop. All processes come here at the same step.

        Raises:
            FeedError: Always; in a process that has its batches, to say which has not and why.
        """
        # The main process shows its error and ends, and the others with it: it must know theirs.
        told = self.gather(None if failure is None else str(failure))
        others = (f"Process {rank} could not make its batches: {text}" for rank, text in enumerate(told) if text)
        what = "\n".join(others) if failure is None else str(failure)
        step = self.state.global_step
        if self.is_in_train and step == 0:
            what += "\nNo step had been taken."
        elif self.is_in_train:
            if not checkpoint_path(self.args.output_dir, step).exists():
                self._save_checkpoint(self.model, None)
            what += f"\nAll is saved up to step {step}: when this is put right, go on with resume_from_checkpoint=true."
        raise FeedError(what) from failure

    def _measure_step(self, batches: list[Any]) -> None:
        """Put into each micro-batch what the loss needs to know of all of them together; most losses need nothing."""
        with torch.no_grad(), self.accelerator.autocast():
            measured = self.objective.measure(self.model_wrapped, map(self._prepare_inputs, batches))
        if measured.means:
            means = mean_tensors(measured.means, self._sum_over_processes, self.args.device)
            for batch, own in zip(batches, measured.by_batch or itertools.repeat({}), strict=False):
                batch.update(own, step_means=means)

    def _leave_measuring_to(self, batch: dict[str, Any]) -> None:
        """Let the loss of a micro-batch that is all of its step measure the step on the way."""

        def reduce(own: Mapping[str, Mean]) -> Mapping[str, Tensor]:
            # Kept, so that nothing is exchanged once more where the batch does not fit and is done again in parts.
            batch["step_means"] = means = mean_tensors(own, self._sum_over_processes, self.args.device)
            return means

        batch["reduce_means"] = reduce

    def gather(self, own: Any) -> list[Any]:
        """Return what each process has, in their order; all of them have to ask."""
        if self.accelerator.num_processes == 1:
            return [own]
        gathered: list[Any] = [None] * self.accelerator.num_processes
        torch.distributed.all_gather_object(gathered, own)
        return gathered

    def _sum_over_processes(self, values: Tensor) -> Tensor:
        if self.accelerator.num_processes == 1:
            return values
        summed: Tensor = self.accelerator.reduce(values, reduction="sum")
        return summed

    # -- what happens to a batch -------------------------------------------------------------------------------------

    def prepare_rows(self, rows: Sequence[Any]) -> dict[str, Any]:
        """Return rows of the training set as a batch on the device."""
        return self._prepare_inputs(self.data_collator(list(rows)))

    def _prepare_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Move a batch to the device, without the keys that are not for the model."""
        copied = {} if self._copies is None else self._copies.take(inputs)
        # Whatever was put into the batch since its copy began is copied now.
        rest = [key for key in inputs if key not in copied and key not in BOOKKEEPING_KEYS]
        return {**copied, **{key: self._moved(inputs[key]) for key in rest}}

    def _moved(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(self.args.device, non_blocking=True)
        return self._prepare_inputs(value) if isinstance(value, Mapping) else value

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Run one micro-batch forwards and backwards.

        Trainer's own does the same, and puts the model into training mode each time by walking through all its modules:
        some ten milliseconds for a small model with adapters, which an accelerator spends idle.
        """
        # The outermost flag alone is no proof: peft's wrapper starts in training mode around a model that is not.
        if not (self._is_in_training_mode and model.training):
            model.train()
            self._is_in_training_mode = True
        self.optimizer.train()  # of accelerate's wrapper: for schedule-free optimizers, nothing for others
        step = self.step_batches
        number, step.number = step.number, step.number + 1
        if self.halving is None or number >= len(step.batches):  # called for a batch that is not of the feed
            return self._run_whole(model, inputs, num_items_in_batch)
        step.levels[number] = self.halving.first_level(inputs)
        try:
            loss = self._run_parts(model, number, num_items_in_batch)
        except torch.OutOfMemoryError as error:
            failure = error
        else:
            feed = self.stream or self.feed
            if self._copies is not None and feed is not None and step.number == len(step.batches):
                self._look_ahead(self._copies, feed)
            return loss
        while True:  # outside of the handler, which keeps what did not fit alive
            self._check_repeatable(number, failure)
            del failure
            release_memory(self.args.device)
            try:
                return self._repeat_step(model, number, num_items_in_batch)
            except torch.OutOfMemoryError as error:
                failure = error

    def _look_ahead(self, copies: DeviceCopies, feed: BatchFeed | StreamFeed) -> None:
        """Fetch the next step's batches, and copy them, while the GPU works on this step's backward pass.

        Where that takes longer than the backward pass, the GPU waits for data, although it is the optimizer's turn.
        """
        work = DeviceWork(self.args.device)
        copies.clear()
        for batch in feed.look_ahead(self.args.gradient_accumulation_steps, work):
            copies.start(batch)
        self.meter.account.move(work.idle_seconds(), "optimizer", "data")

    def _run_whole(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None) -> Tensor:
        account = self.meter.account
        account.enter("copy")
        prepared = self._prepare_inputs(inputs)
        account.enter("forward")
        loss: Tensor = self.compute_loss(model, prepared, num_items_in_batch=num_items_in_batch)
        account.enter("backward")
        # LOMO's optimizers update parameters in here, and have to know the learning rate of the step.
        rate = {"learning_rate": self._get_learning_rate()} if self.accelerator.has_lomo_optimizer else {}
        self.accelerator.backward(loss, **rate)
        account.enter("optimizer")
        return loss.detach()

    def _run_parts(self, model: nn.Module, number: int, num_items_in_batch: Tensor | int | None) -> Tensor:
        """Run a micro-batch of the step in as many parts as it has to be; gradients are exchanged after the last."""
        assert self.halving is not None
        step, losses = self.step_batches, self.step_record.losses
        batch = step.batches[number]
        if step.levels[number] and "reduce_means" in batch and "step_means" not in batch:
            self._measure_step([batch])  # a part of it does not show the means of the whole
        parts = self.halving.parts(number, batch, step.levels[number])
        done, total = len(losses), torch.zeros((), device=self.args.device)
        for place, part in enumerate(parts):
            is_last = place == len(parts) - 1
            with lack_of_memory_told(), nullcontext() if is_last else self.accelerator.no_sync(model):
                total = total + self._run_whole(model, part, num_items_in_batch)
        if len(parts) > 1:
            losses[done:] = [torch.stack(losses[done:]).sum()]  # one for each micro-batch, as the guard expects
        return total

    def _repeat_step(self, model: nn.Module, number: int, num_items_in_batch: Tensor | int | None) -> Tensor:
        """Do the micro-batches of the step up to this one again, from no gradient on: a part of one may be in it."""
        model.zero_grad()
        self.step_record.losses.clear()
        self.meter.window_loss = self._loss_before_step
        for earlier in range(number):
            with self.accelerator.no_sync(model):
                self._run_parts(model, earlier, num_items_in_batch)
        return self._run_parts(model, number, num_items_in_batch)

    def _check_repeatable(self, number: int, failure: BaseException) -> None:
        """Halve a micro-batch that did not fit once more, or say why that is of no use."""
        assert self.halving is not None
        step, batch = self.step_batches, self.step_batches.batches[number]
        is_exchanging = self.accelerator.num_processes > 1 and self.accelerator.sync_gradients
        if is_exchanging and self.meter.account.phase == "backward":
            raise explain_lost_exchange() from failure
        updater = None if self.plan.optimization is None else self.plan.optimization.backward_updater
        if updater is not None:
            raise explain_single_pass(batch, updater) from failure
        if not self.halving.can_be_halved(number, step.levels[number]):
            raise explain_too_long(batch) from failure
        self.halving.note(batch, step.levels[number])
        step.levels[number] += 1


class _StepBorders(TrainerCallback):
    """Tells the account when the optimizer is done."""

    def __init__(self, account: TimeAccount) -> None:
        self._account = account

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """End the optimizer's part of a step: what follows is logging, saving, and the next batch."""
        self._account.enter("other")
