"""`transformers.Trainer` with objectives: the one place where a loss is divided.

An objective gives sums. Here they are divided once, by the items of the whole optimiser step over all micro-batches and
processes, so that 8x1, 2x4 and 1x8, one process and two, give the same gradients. Evaluation is exact to the token, and
checkpoints are written beside and renamed. A contract test compares what is overridden with the installed Trainer.
"""

import math
import time
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from accelerate.optimizer import AcceleratedOptimizer
from torch import Tensor, nn
from transformers import PrinterCallback, ProgressCallback, TrainerCallback
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import EvalLoopOutput

from tunesmith.config.training import TrainingConfig
from tunesmith.errors import CheckpointError
from tunesmith.evaluation.perplexity import measure_loss
from tunesmith.models.heads import find_base_model
from tunesmith.models.offloading import ActivationOffload
from tunesmith.objectives.base import Objective
from tunesmith.runtime.files import atomic_files, explain_failed_writes, write_json_atomic
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.callbacks.guards import StepRecord
from tunesmith.training.checkpoints import (
    MAKE_ROOM,
    checkpoint_path,
    discard_unfinished,
    finish_checkpoint,
    rotate_checkpoints,
    staging_path,
    start_checkpoint,
)
from tunesmith.training.embedding_noise import EmbeddingNoise
from tunesmith.training.io.fed_trainer import FedTrainer
from tunesmith.training.io.feed import BatchFeed
from tunesmith.training.io.halving import Halving, MeasuredParts, StepBatches
from tunesmith.training.loaders import UpToTrouble
from tunesmith.training.model_folder import remove_other_weights, save_model
from tunesmith.training.monitoring.account import describe_times
from tunesmith.training.monitoring.meter import RunMeter
from tunesmith.training.optimizers import build_optimizer
from tunesmith.training.optimizers.blockwise import shorten_sparse
from tunesmith.training.resume import RUN_STATE, ResumePoint, load_run_state
from tunesmith.training.saved_sizes import saved_bytes, state_bytes
from tunesmith.training.trainer_plan import TrainerPlan


class ObjectiveTrainer(FedTrainer):
    """A Trainer that learns an objective."""

    loss_is_scaled_for_ga = True
    """Tells Trainer not to divide by the number of micro-batches."""

    def __init__(
        self,
        *,
        objective: Objective,
        plan: TrainerPlan,
        ranks: Ranks,
        callbacks: Sequence[TrainerCallback] = (),
        **options: Any,
    ) -> None:
        self.objective = objective
        self.plan = plan
        self.meter = RunMeter(ranks=ranks)
        self.step_record = StepRecord()
        self.step_batches = StepBatches()
        self._ranks = ranks
        self._flops_per_token: int | None = None
        self._is_in_training_mode = False
        self._measured_parts: MeasuredParts | None = None
        super().__init__(callbacks=list(callbacks), **options)
        self._noise = None
        if plan.neftune_noise_alpha is not None:
            embeddings = find_base_model(self.model).get_input_embeddings()
            self._noise = EmbeddingNoise(embeddings, plan.neftune_noise_alpha)
        self._offload = ActivationOffload(self.model.parameters()) if plan.offloads_activations else None
        self._watch_time()
        self._open_stream()
        # Both write to the terminal on their own; monitoring/ does it here.
        self.remove_callback(PrinterCallback)
        self.remove_callback(ProgressCallback)

    def train(
        self, resume_from_checkpoint: Any = None, trial: Any = None, ignore_keys_for_eval: list[str] | None = None
    ) -> Any:
        """Train; whatever was done to the model before, its first step puts all of it into training mode."""
        self._is_in_training_mode = False
        try:
            with nullcontext() if self._noise is None else self._noise.attached():
                return super().train(resume_from_checkpoint, trial, ignore_keys_for_eval)
        finally:
            self.stop_feeding()

    def _run_epoch(self, **options: Any) -> None:
        """Run one pass over the rows; none where a run is resumed that has done all its steps.

        Trainer looks at the number of steps only after one, so that a run that ends within an epoch would get one step
        more each time it is resumed.
        """
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return
        super()._run_epoch(**options)

    # -- loss --------------------------------------------------------------------------------------------------------

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return the part of this micro-batch in the mean loss of its optimiser step."""
        noise = nullcontext() if self._noise is None or not model.training else self._noise.on(inputs)
        offload = nullcontext() if self._offload is None or not model.training else self._offload
        with self.accelerator.autocast(), noise, offload:
            result = self.objective.compute(model, inputs)
        mean = result.total / (result.items.clamp(min=1) if num_items_in_batch is None else num_items_in_batch)
        if model.training:
            self.step_record.losses.append(result.total.detach())
            self.meter.add_loss(mean.detach())
            self.meter.means.add(result.means)
        # Data parallelism averages gradients over processes; their sum is wanted.
        loss = mean * self.accelerator.num_processes
        return (loss, {}) if return_outputs else loss

    def _clip_grad_norm(self, model: nn.Module) -> Any:
        """Clip the gradients of what the optimizer trains, without a search through all modules for them."""
        if self._has_sparse_gradients:
            return shorten_sparse(self.model.parameters(), self.args.max_grad_norm)
        trained = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        return self.accelerator.clip_grad_norm_(trained, self.args.max_grad_norm)

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        """Keep the gradient norm for the guard, which Trainer does not hand to callbacks."""
        if grad_norm is None and self._has_sparse_gradients:
            grad_norm = shorten_sparse(self.model.parameters(), math.inf)
        self.step_record.gradient_norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        return self.step_record.gradient_norm

    @property
    def _has_sparse_gradients(self) -> bool:
        settings = self.plan.optimization
        return settings is not None and settings.use_badam and settings.badam_mode == "ratio"

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Estimate the operations of a micro-batch: 6 per parameter and token.

        Trainer's own walks through all modules for each micro-batch to count the same parameters again.
        """
        if self._flops_per_token is None:
            self._flops_per_token = 6 * sum(parameter.numel() for parameter in self.model.parameters())
        return self._flops_per_token * int(inputs["input_ids"].numel())

    def create_optimizer(self, model: nn.Module | None = None) -> Any:
        """Make the optimizer that the settings name, over our parameter groups."""
        if self.optimizer is None:
            trained = self.model if model is None else model
            self.optimizer = build_optimizer(
                trained,
                self.plan.optimization
                or TrainingConfig(learning_rate=self.args.learning_rate, weight_decay=self.args.weight_decay),
                lambda: self.get_optimizer_cls_and_kwargs(self.args, trained),
                self.plan.lora_plus,
            )
        return self.optimizer

    # -- evaluation --------------------------------------------------------------------------------------------------

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Measure a set, exact to the token, in memory that does not grow with it."""
        started = time.perf_counter()
        self._is_in_training_mode = False
        self._show_final_weights()
        batches = UpToTrouble(dataloader, self._check_fed)
        with closing(dataloader.feed), self.meter.account.paused():
            with self.accelerator.autocast():
                measured = measure_loss(
                    self.model, batches, self.objective, self._prepare_inputs, self._build_parts(dataloader.feed)
                )
            metrics = {f"{metric_key_prefix}_loss": measured.loss}
            if self.objective.loss_is_per_token:
                metrics[f"{metric_key_prefix}_perplexity"] = measured.perplexity
            metrics.update({f"{metric_key_prefix}_{name}": value for name, value in measured.means.items()})
            if self.plan.reports_accuracy and measured.accuracy is not None:
                metrics[f"{metric_key_prefix}_accuracy"] = measured.accuracy
            if self.plan.score_answers is not None:
                metrics.update(self.plan.score_answers(self._rows_behind(dataloader), metric_key_prefix))
        self.meter.add_pause(time.perf_counter() - started)
        return EvalLoopOutput(
            predictions=None, label_ids=None, metrics=metrics, num_samples=self.num_examples(dataloader)
        )

    def _build_parts(self, feed: BatchFeed) -> MeasuredParts:
        """Return what measures the batches of an evaluation; it knows what did not fit into memory in the last one."""
        known = None if self._measured_parts is None else self._measured_parts.halving.too_large
        self._measured_parts = MeasuredParts(
            Halving(lambda number: [feed.dataset[row] for row in feed.rows_at(number)], self.data_collator, known),
            lambda batch: self.objective.compute(self.model, self._prepare_inputs(batch)),
            self.args.device,
        )
        return self._measured_parts

    def _show_final_weights(self) -> None:
        """Let a schedule-free optimizer put its averaged weights into the model; others have nothing to do."""
        if isinstance(self.optimizer, AcceleratedOptimizer):
            self.optimizer.eval()

    @staticmethod
    def _rows_behind(dataloader: Any) -> Any:
        return dataloader.dataset.rows

    # -- log ---------------------------------------------------------------------------------------------------------

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Complete a line of the log with what the meter knows."""
        if "loss" in logs:
            report = self.meter.close_window(self._sum_over_processes, self.args.device)
            logs["loss"] = report.loss
            logs.update(self.meter.means.close(self._sum_over_processes, self.args.device))
            logs["tokens_per_second"] = round(report.tokens_per_second, 2)
            logs["padded_tokens_per_second"] = round(report.padded_tokens_per_second, 2)
            logs.update(describe_times(report.times, report.num_steps))
            logs["total_tokens"] = self.meter.real_tokens
        elif "train_loss" in logs:  # the end of training: steps since the last line count too
            self.meter.close_window(self._sum_over_processes, self.args.device)
            self.meter.means.close(self._sum_over_processes, self.args.device)
            logs["train_loss"] = self.meter.mean_loss
        super().log(logs, start_time)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def restore(self, point: ResumePoint) -> None:
        """Go on counting where a checkpoint left off; `train(resume_from_checkpoint)` brings the weights back."""
        states = load_run_state(point)["meters"]
        self.meter.load_state(states[self._ranks.rank])
        if self.stream is not None:
            self.stream.load(point.path)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Write a checkpoint beside its place and rename it when it is whole."""
        started = time.perf_counter()
        final = checkpoint_path(self.args.output_dir, self.state.global_step)
        needed = saved_bytes(self.model) + (0 if self.args.save_only_model else state_bytes(self.optimizer))
        with explain_failed_writes(final, CheckpointError, MAKE_ROOM, needed), discard_unfinished(final):
            self._write_checkpoint(final)
        self.meter.add_pause(time.perf_counter() - started)

    def _write_checkpoint(self, final: Path) -> None:
        self._show_final_weights()
        staging = staging_path(final)
        self.store_flos()
        if self.args.should_save:
            start_checkpoint(final)
        self.accelerator.wait_for_everyone()
        self._note_best(final.name)
        self.save_model(str(staging), _internal_call=True)
        if not self.args.save_only_model:
            self._save_optimizer_and_scheduler(str(staging))
            self._save_scaler(str(staging))
            self._save_rng_state(str(staging))
        if self.stream is not None:
            self.stream.save(staging)
        meters = self.gather(self.meter.state())
        if self.args.should_save:
            self._note_callback_states()
            self.state.save_to_json(str(staging / "trainer_state.json"))
            write_json_atomic(staging / RUN_STATE, {"meters": meters})
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            finish_checkpoint(
                final,
                run_id=self.plan.run_id,
                step=self.state.global_step,
                order=self.plan.order,
                settings=self.plan.settings,
                is_resumable=not self.args.save_only_model,
            )
            rotate_checkpoints(
                self.args.output_dir,
                self.plan.save_total_limit,
                run_id=self.plan.run_id,
                best=self.state.best_model_checkpoint,
            )
        self.accelerator.wait_for_everyone()

    def _note_best(self, current: str) -> None:
        if self.state.best_global_step:
            best = checkpoint_path(self.args.output_dir, self.state.best_global_step)
            if best.name == current or best.is_dir():
                self.state.best_model_checkpoint = str(best)

    def _note_callback_states(self) -> None:
        """Put the states of callbacks that have one (early stopping) where `TrainerState` saves them."""
        states: dict[str, Any] = {}
        for callback in [*self.callback_handler.callbacks, self.control]:
            if isinstance(callback, ExportableState):
                states.setdefault(type(callback).__name__, []).append(callback.state())
        self.state.stateful_callbacks = states

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Write the model or adapter and the tokenizer with its template; nothing that has to be unpickled."""
        if not self.args.should_save:
            return
        self._show_final_weights()
        folder = output_dir or self.args.output_dir
        model = self.accelerator.unwrap_model(self.model)
        with atomic_files(folder) as beside:
            save_model(
                model,
                beside,
                self.processing_class,
                state_dict,
                trained_for=self.plan.trained_for,
                changes_positions=self.plan.changes_positions,
            )
            written = {path.name for path in beside.iterdir()}
        remove_other_weights(folder, written)
