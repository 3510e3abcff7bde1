"""Puts the parts of a run together: trainer, order of rows, callbacks and monitors."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import EarlyStoppingCallback, PreTrainedTokenizerBase, Seq2SeqTrainingArguments, TrainerCallback
from transformers.integrations import TensorBoardCallback

from tunesmith.config import RunConfig
from tunesmith.config.objective import PAIR_STAGES
from tunesmith.data.batches import BatchLayout
from tunesmith.data.chat import ChatTemplate
from tunesmith.data.collators import Collator, build_collator
from tunesmith.data.collators.completions import split_pair
from tunesmith.data.collators.layouts import RowKind
from tunesmith.data.loading.samplers import EpochSampler, SamplingStrategy, build_sampler
from tunesmith.data.prepared import EVAL_NAME, PreparedData
from tunesmith.data.records import Message
from tunesmith.data.tokenization import encode_prompt
from tunesmith.evaluation.predictions import predict, split_last_answer
from tunesmith.inference.local import LocalGenerator
from tunesmith.models import LoadedModel
from tunesmith.models.quantization.qat import CompressionScheme
from tunesmith.objectives import Objective
from tunesmith.runtime.files import check_writable
from tunesmith.runtime.optional import require
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.callbacks.custom import load_callbacks
from tunesmith.training.callbacks.guards import NumberGuard
from tunesmith.training.callbacks.interruption import Interruption
from tunesmith.training.callbacks.last_line import LastLine
from tunesmith.training.callbacks.ranks import MoveRanks
from tunesmith.training.callbacks.rounding import StartRounding
from tunesmith.training.callbacks.samples import SamplePrinter, SamplePrompt
from tunesmith.training.callbacks.schedule import FollowSchedule
from tunesmith.training.checkpoints import RowOrder
from tunesmith.training.io.settings import resolve_policy
from tunesmith.training.io.token_batches import find_token_batches
from tunesmith.training.lineage import decisive_settings
from tunesmith.training.monitoring.log import LOG_FILE, LogFile
from tunesmith.training.monitoring.progress import Progress
from tunesmith.training.optimizers import LoraPlusRates
from tunesmith.training.prefix_sharing import NO_SHARING, PrefixSharing
from tunesmith.training.resume import ResumePoint, check_row_order
from tunesmith.training.schedule import Schedule
from tunesmith.training.trainer import ObjectiveTrainer
from tunesmith.training.trainer_plan import ScoreAnswers, TrainerPlan

_NUM_SAMPLE_PROMPTS = 3
_ROW_KINDS: Mapping[str, RowKind] = {**dict.fromkeys(PAIR_STAGES, "pairs"), "kto": "feedback"}
"""What the rows of a stage hold, where it is not one sequence."""

_GPU_PAD_MULTIPLE = 8
"""Matrix units of GPUs want lengths in eights; on a CPU it would be padding for nothing."""


@dataclass(frozen=True, slots=True)
class RunParts:
    """Everything that was prepared for a run."""

    config: RunConfig
    ranks: Ranks
    arguments: Seq2SeqTrainingArguments
    tokenizer: PreTrainedTokenizerBase
    template: ChatTemplate | None
    """`None` for plain text."""

    data: PreparedData
    loaded: LoadedModel
    layout: BatchLayout
    objective: Objective
    schedule: Schedule | None
    """Length of the training; `None` for a run that trains nothing."""

    prefix_sharing: PrefixSharing = NO_SHARING
    """Whether the prompt of a pair is computed once."""

    @property
    def trains(self) -> bool:
        """Whether weights change."""
        return self.schedule is not None

    @property
    def output_dir(self) -> Path:
        """Folder of the run."""
        return Path(self.arguments.output_dir)


@dataclass(frozen=True, slots=True)
class AssembledTrainer:
    """A trainer and the callbacks that the run itself talks to."""

    trainer: ObjectiveTrainer
    interruption: Interruption
    progress: Progress
    generator: LocalGenerator


def assemble_trainer(parts: RunParts, point: ResumePoint | None) -> AssembledTrainer:
    """Build the trainer of a run.

    Args:
        parts: What was prepared.
        point: Checkpoint to go on from, `None` at the beginning.

    Raises:
        CheckpointError: The checkpoint belongs to a run with another order of rows.
    """
    order, sampler = _row_order(parts)
    if point is not None:
        check_row_order(point, order)
    generator = _build_generator(parts)
    trainer = ObjectiveTrainer(
        model=parts.loaded.model,
        args=parts.arguments,
        objective=parts.objective,
        plan=TrainerPlan(
            run_id=uuid.uuid4().hex if point is None else point.manifest.run_id,
            order=order,
            loading=resolve_policy(parts.config.loading, parts.arguments.device.type),
            describe_source=parts.data.describe_row,
            settings=decisive_settings(parts.config),
            sampler=sampler,
            stream=parts.data.stream,
            token_batches=None
            if parts.data.train is None
            else find_token_batches(parts.config, parts.data.train, parts.layout, parts.ranks),
            save_total_limit=parts.config.training.save_total_limit,
            optimization=parts.config.training,
            trained_for=CompressionScheme.of(parts.config.quantization),
            offloads_activations=parts.config.model.activation_offload,
            changes_positions=parts.loaded.changes_positions,
            lora_plus=_lora_plus(parts.config),
            neftune_noise_alpha=parts.config.training.neftune_noise_alpha,
            reports_accuracy=parts.config.training.compute_accuracy,
            score_answers=_score_answers(parts, generator),
        ),
        ranks=parts.ranks,
        train_dataset=parts.data.train,
        eval_dataset=parts.data.evals.get(EVAL_NAME),
        data_collator=build_run_collator(parts),
        processing_class=parts.tokenizer,
    )
    interruption = Interruption(_agreement(trainer))
    progress = Progress(trainer.meter)
    for callback in _callbacks(parts, trainer, generator, interruption, progress):
        trainer.add_callback(callback)
    if point is not None:
        trainer.restore(point)
    return AssembledTrainer(trainer, interruption, progress, generator)


def _row_order(parts: RunParts) -> tuple[RowOrder, EpochSampler | None]:
    config, rows = parts.config, parts.data.train
    training = config.training
    seed = training.seed if training.data_seed is None else training.data_seed
    strategy: SamplingStrategy = config.loading.train_sampling_strategy
    if config.loading.group_by_length:
        strategy = "group_by_length"
    if config.loading.disable_shuffling:
        strategy = "sequential"
    order = RowOrder(
        num_rows=0 if rows is None else len(rows),
        per_device_train_batch_size=training.batch_size,
        gradient_accumulation_steps=training.gradient_accumulation_steps,
        num_processes=parts.ranks.world_size,
        seed=seed,
        strategy=strategy if parts.data.stream is None else f"streaming, {strategy}",
        drop_last=config.loading.dataloader_drop_last,
        tokens_per_device_batch=config.loading.tokens_per_device_batch,
        num_tokens=None if rows is None else int(rows.lengths.sum()),
    )
    if rows is None:
        return order, None
    batch_size = training.batch_size * parts.ranks.world_size
    return order, build_sampler(strategy, rows.lengths, batch_size=batch_size, seed=seed)


def _lora_plus(config: RunConfig) -> LoraPlusRates | None:
    adapter = config.adapter
    if adapter.loraplus_lr_ratio is None:
        return None
    return LoraPlusRates(adapter.loraplus_lr_ratio, adapter.loraplus_lr_embedding)


def build_run_collator(parts: RunParts) -> Collator:
    """Return what makes batches of the run's rows, in its layout."""
    pad = parts.tokenizer.pad_token_id
    assert pad is not None, "load_tokenizer sets a pad token"
    learns_padding = not parts.config.data.ignore_pad_token_for_loss
    # Where padding is learnt, none may be added for the machine's sake.
    on_gpu = parts.layout == "padded" and parts.arguments.device.type == "cuda" and not learns_padding
    return build_collator(
        parts.layout,
        kind=_ROW_KINDS.get(parts.config.objective.stage, "single"),
        pad_token_id=int(pad),
        pad_to_multiple_of=_GPU_PAD_MULTIPLE if on_gpu else None,
        ignore_pad_token_for_loss=not learns_padding,
        shares_prompts=parts.prefix_sharing.is_on,
    )


def _build_generator(parts: RunParts) -> LocalGenerator:
    precision = parts.loaded.precision
    return LocalGenerator(
        parts.loaded.model,
        parts.tokenizer,
        end_markers=() if parts.template is None else parts.template.end_markers,
        batch_size=parts.config.training.per_device_eval_batch_size,
        autocast=lambda: precision.autocast(parts.arguments.device),
    )


def _score_answers(parts: RunParts, generator: LocalGenerator) -> ScoreAnswers | None:
    if not parts.config.training.predict_with_generate:
        return None
    options = parts.config.generation

    def score(rows: Any, prefix: str) -> dict[str, float]:
        path = parts.output_dir / f"{prefix}_predictions.jsonl"
        scores = predict(generator, rows, parts.tokenizer, path, options=options)
        return {f"{prefix}_{name}": value for name, value in scores.items()}

    return score


def _agreement(trainer: ObjectiveTrainer) -> Callable[[bool], bool]:
    def agree(is_asked: bool) -> bool:
        if trainer.accelerator.num_processes == 1:
            return is_asked
        flag = torch.tensor(int(is_asked), device=trainer.args.device)
        return bool(trainer.accelerator.reduce(flag, reduction="sum").item())

    return agree


def _callbacks(
    parts: RunParts,
    trainer: ObjectiveTrainer,
    generator: LocalGenerator,
    interruption: Interruption,
    progress: Progress,
) -> Sequence[TrainerCallback]:
    training = parts.config.training
    callbacks: list[TrainerCallback] = [
        NumberGuard(trainer.step_record, parts.data.describe_row, scales_loss=parts.arguments.fp16),
        LogFile(parts.output_dir / LOG_FILE, trainer.meter),
        progress,
        FollowSchedule(),
    ]
    if isinstance(parts.loaded.model, PeftModel) and parts.config.adapter.finetuning_type == "adalora":
        callbacks.append(MoveRanks(parts.loaded.model))
    scheme = CompressionScheme.of(parts.config.quantization)
    if scheme is not None:
        callbacks.append(StartRounding(parts.loaded.model, scheme, parts.config.quantization.qat_start_step))
    if training.early_stopping_steps is not None:
        callbacks.append(EarlyStoppingCallback(training.early_stopping_steps))
    if training.sample_steps is not None:
        callbacks.append(
            SamplePrinter(
                generator,
                parts.tokenizer,
                _sample_prompts(parts),
                every_steps=training.sample_steps,
                options=parts.config.generation,
            )
        )
    if training.logging_dir is not None and "tensorboard" in training.report_to:
        check_writable(training.logging_dir, "logging_dir")
        trainer.remove_callback(TensorBoardCallback)  # the stock one only looks at an environment variable
        board = require("torch.utils.tensorboard", extra="tensorboard", purpose="write TensorBoard's files")
        callbacks.append(TensorBoardCallback(board.SummaryWriter(log_dir=training.logging_dir)))
    # The user's own see what the others did; the decision to stop comes last, so that nothing overrules it.
    return [*callbacks, *load_callbacks(training.callbacks), LastLine(interruption), interruption]


def _sample_prompts(parts: RunParts) -> list[SamplePrompt]:
    written = parts.config.training.sample_prompts
    if written:
        return [SamplePrompt(text, _prompt_ids(parts, text)) for text in written]
    rows: Any = parts.data.evals.get(EVAL_NAME, parts.data.train)
    if rows is None:
        rows = parts.data.stream.peek(_NUM_SAMPLE_PROMPTS) if parts.data.stream is not None else ()
    prompts: list[SamplePrompt] = []
    for index in range(min(_NUM_SAMPLE_PROMPTS, len(rows))):
        row = rows[index]
        example = row[0] if isinstance(row, list) else row
        # Of a row with completions, the preferred or the rated one.
        prompt, answer = split_last_answer(split_pair(example)[0] if "prompt_end" in example else example)
        texts = [str(parts.tokenizer.decode(ids, skip_special_tokens=True)) for ids in (prompt, answer)]
        prompts.append(SamplePrompt(texts[0], prompt, texts[1]))
    return prompts


def _prompt_ids(parts: RunParts, text: str) -> list[int]:
    if parts.template is None:
        return list(parts.tokenizer(text)["input_ids"])
    return encode_prompt(parts.tokenizer, parts.template, [Message("user", text)])
