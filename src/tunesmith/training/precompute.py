"""The reference's log-probabilities of all rows, computed once before training and kept with the prepared data.

They are found again by content: the rows, the weights of the reference and how they are scored. Neither names nor times
of files count. What a run had computed when it died is kept in the same way, see `_Unfinished`.
"""

import hashlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from tqdm import tqdm

from tunesmith.data.loading.cache import resolve_cache_dir
from tunesmith.data.loading.datasets import ExampleDataset, PackedDataset
from tunesmith.data.loading.feedback import FeedbackDataset
from tunesmith.data.loading.referenced import ReferencedRows
from tunesmith.data.prepared import EVAL_NAME
from tunesmith.models.heads import evaluation_mode, find_base_model
from tunesmith.objectives.feedback import FeedbackObjective
from tunesmith.objectives.preference import PreferenceObjective
from tunesmith.objectives.reference import ReferencePolicy
from tunesmith.runtime.files import atomic_file
from tunesmith.training.assembly import RunParts
from tunesmith.training.reference import OtherModel, WithoutAdapter, WithStartWeights
from tunesmith.training.trainer import ObjectiveTrainer

logger = logging.getLogger(__name__)

Rows = ExampleDataset | FeedbackDataset
_FORMAT = 2
_SECONDS_BETWEEN_WRITES = 30.0

_NAMES = frozenset({"_name_or_path", "architectures", "transformers_version", "use_cache"})
"""Settings of a model that say where it comes from, not what it computes."""


@dataclass(frozen=True, slots=True)
class Precomputed:
    """A reference whose log-probabilities come with every batch."""

    described: str
    equals_policy_at_start: bool

    def describe(self) -> str:
        """Return what the reference is."""
        return f"{self.described}, computed for all rows beforehand"

    def completion_log_probabilities(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """See `ReferencePolicy.completion_log_probabilities`."""
        return batch["reference_log_probabilities"]


def precompute_reference(parts: RunParts, trainer: ObjectiveTrainer) -> RunParts:
    """Compute what the reference thinks of all rows, where `precompute_reference` says so, and let go of it.

    Args:
        parts: Of the run, before its first step.
        trainer: Its rows and its objective are exchanged, too.

    Returns:
        The parts with rows that carry the values, or as they were.
    """
    objective = parts.objective
    if not isinstance(objective, PreferenceObjective | FeedbackObjective) or objective.reference is None:
        return parts
    reference = objective.reference
    if not _is_wanted(parts, reference):
        return parts
    store = _Store(parts, trainer, reference)
    train = store.with_values(parts.data.train) if parts.trains else parts.data.train
    evals = {name: store.with_values(rows) for name, rows in parts.data.evals.items()}
    changed = replace(objective, reference=Precomputed(reference.describe(), reference.equals_policy_at_start))
    trainer.objective = changed
    trainer.train_dataset, trainer.eval_dataset = train, evals.get(EVAL_NAME)
    return replace(parts, objective=changed, data=replace(parts.data, train=train, evals=evals))


def _is_wanted(parts: RunParts, reference: ReferencePolicy) -> bool:
    asked = parts.config.reference.precompute_reference
    if parts.data.stream is not None:  # rows that are read as they come carry nothing; the settings refuse `true`
        return False
    rows = [parts.data.train, *parts.data.evals.values()]
    if asked is not True and (asked is False or not all(map(_can_carry, rows))):
        return False
    if asked is True:
        return True
    schedule = parts.schedule
    per_epoch = None if schedule is None else schedule.steps_per_epoch
    repeats = schedule is not None and per_epoch is not None and schedule.total_steps > per_epoch
    return repeats or isinstance(reference, OtherModel)


def _can_carry(rows: Any) -> bool:
    inner = rows.examples if isinstance(rows, PackedDataset) else rows
    return inner is None or isinstance(inner, ExampleDataset | FeedbackDataset)


class _Store:
    """Computes values or finds them in the folder of prepared data."""

    def __init__(self, parts: RunParts, trainer: ObjectiveTrainer, reference: ReferencePolicy) -> None:
        self._parts, self._trainer, self._reference = parts, trainer, reference
        self._folder = resolve_cache_dir(parts.config.loading.dataset_cache_dir)
        self._weights = _digest_weights(trainer.model, reference)

    def with_values(self, rows: Any) -> Any:
        """Return the rows with the reference's log-probabilities beside each."""
        if rows is None:
            return None
        if isinstance(rows, PackedDataset):
            return PackedDataset(self.with_values(rows.examples), rows.packs)
        file = self._folder / f"reference-{self._key(rows)}.npy"
        values = self._find(file, len(rows))
        if values is None:
            unfinished = _Unfinished(file, self._parts.ranks.rank)
            values = self._compute(rows, unfinished)
            if self._parts.ranks.is_main:
                _write(file, values)
            unfinished.remove()
        else:
            logger.info("The reference's log-probabilities of %s rows are taken from the cache.", f"{len(rows):,}")
        return ReferencedRows(rows, values)

    def _find(self, file: Path, num_rows: int) -> NDArray[np.float32] | None:
        """Return stored values if every process finds them: those that compute wait for all the others."""
        values = _read(file, num_rows)
        if self._parts.ranks.world_size == 1:
            return values
        found: list[Any] = [None] * self._parts.ranks.world_size
        torch.distributed.all_gather_object(found, values is not None)  # nodes may have folders of their own
        return values if all(found) else None

    def _key(self, rows: Rows) -> str:
        config, precision = self._parts.config, self._parts.loaded.precision
        settings = (_FORMAT, self._weights, config.objective.stage, config.preference.ld_alpha)
        digest = hashlib.sha256(repr((*settings, precision.frozen_dtype, precision.autocast_dtype)).encode())
        for index in range(len(rows)):
            row: Any = rows[index]
            digest.update(np.array([row["prompt_end"], row["chosen_end"], len(row["input_ids"])]).data)
            digest.update(np.ascontiguousarray(row["input_ids"]).data)
            digest.update(np.ascontiguousarray(row["trained_spans"]).data)
        return digest.hexdigest()[:32]

    def _compute(self, rows: Rows, unfinished: "_Unfinished") -> NDArray[np.float32]:
        """Run the reference over all rows that have no values yet, each process over its share. Shape [rows, 2]."""
        ranks, size = self._parts.ranks, self._parts.config.training.per_device_eval_batch_size
        order = np.argsort(rows.lengths, kind="stable")  # rows of like length share a batch
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        values = unfinished.find(len(rows))
        share = range(ranks.rank, len(batches), ranks.world_size)
        missing = [number for number in share if np.isnan(values[batches[number]]).any()]
        shown = tqdm(missing, desc="Reference", unit=" batches", disable=not ranks.is_main)
        with (
            unfinished.keeping(values),
            evaluation_mode(self._trainer.model),
            torch.no_grad(),
            self._trainer.accelerator.autocast(),
        ):
            for number in shown:
                values[batches[number]] = self._values_of([rows[int(index)] for index in batches[number]])
                unfinished.keep_if_due(values)
        if ranks.world_size > 1:
            gathered: list[Any] = [None] * ranks.world_size
            torch.distributed.all_gather_object(gathered, values)
            for other in gathered:  # a row is nan where another process has it
                values = np.where(np.isnan(values), other, values)
        return values

    def _values_of(self, rows: Sequence[Any]) -> NDArray[np.float32]:
        batch = self._trainer.prepare_rows(rows)
        model, reference = self._trainer.model, self._reference
        found = reference.completion_log_probabilities(model, batch)
        if "mismatched" in batch:
            other = reference.completion_log_probabilities(model, batch["mismatched"])
            found = torch.stack([found, other], dim=1)
        table: NDArray[np.float32] = found.float().reshape(-1, 2).cpu().numpy()
        return table


class _Unfinished:
    """Keeps what a process has computed so far, so that a run that dies has not computed in vain.

    Args:
        file: Where all values go in the end.
        rank: Of this process, which has a file of its own.
    """

    def __init__(self, file: Path, rank: int) -> None:
        self._folder, self._pattern = file.parent, f"{file.stem}.*.part"
        self._file = file.with_name(f"{file.stem}.{rank}.part")
        self._written = time.monotonic()

    def find(self, num_rows: int) -> NDArray[np.float32]:
        """Return the values that earlier runs left, of whatever process; nan for the others. Shape [rows, 2]."""
        values = np.full((num_rows, 2), np.nan, dtype=np.float32)
        for path in sorted(self._folder.glob(self._pattern)):
            found = _read(path, num_rows)
            if found is not None:
                values = np.where(np.isnan(values), found, values)
        known = int((~np.isnan(values).any(axis=1)).sum())
        if known:
            logger.info(
                "The reference's log-probabilities of %s of %s rows were computed by a run that stopped.",
                f"{known:,}",
                f"{num_rows:,}",
            )
        return values

    @contextmanager
    def keeping(self, values: NDArray[np.float32]) -> Iterator[None]:
        """Write down what is known when the block is left by an error or an interruption."""
        with ExitStack() as stack:
            stack.callback(_write, self._file, values)
            yield
            stack.pop_all()

    def keep_if_due(self, values: NDArray[np.float32]) -> None:
        """Write down what is known, every now and then: a process that is killed says nothing."""
        if time.monotonic() - self._written > _SECONDS_BETWEEN_WRITES:
            _write(self._file, values)
            self._written = time.monotonic()

    def remove(self) -> None:
        """Remove what is not needed any more: all values are in one place."""
        for path in self._folder.glob(self._pattern):
            path.unlink(missing_ok=True)


def _digest_weights(policy: nn.Module, reference: ReferencePolicy) -> str:
    """Return a digest of the weights that the reference runs with, and of how its model computes with them."""
    digest = hashlib.sha256(_describe_model(reference.model if isinstance(reference, OtherModel) else policy))
    for weight in _weights_of(policy, reference):
        for tensor in _plain_tensors(weight.detach()):
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).cpu().numpy().data)
    return digest.hexdigest()


def _plain_tensors(weight: Tensor) -> Iterator[Tensor]:
    """Yield what a weight is made of: a compressed one is a tensor of codes and others of scales."""
    wrapper: Any = weight
    if not is_traceable_wrapper_subclass(wrapper):
        yield weight
        return
    names, _ = wrapper.__tensor_flatten__()
    for name in names:
        yield from _plain_tensors(getattr(wrapper, name))


def _describe_model(model: nn.Module) -> bytes:
    """Return the model's settings, of which rotary positions and the like decide what the same weights compute."""
    settings = find_base_model(model).config.to_dict()
    return repr(sorted((name, value) for name, value in settings.items() if name not in _NAMES)).encode()


def _weights_of(policy: nn.Module, reference: ReferencePolicy) -> Iterator[Tensor]:
    if isinstance(reference, OtherModel):
        yield from reference.model.parameters()
    elif isinstance(reference, WithStartWeights):
        with reference.start.restored():
            yield from policy.parameters()
    else:
        assert isinstance(reference, WithoutAdapter), "all kinds of references are known here"
        yield from (parameter for parameter in policy.parameters() if not parameter.requires_grad)


def _read(file: Path, num_rows: int) -> NDArray[np.float32] | None:
    """Return stored values; nothing where there are none, or a file that is not whole."""
    try:
        values: NDArray[np.float32] = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return values if values.shape == (num_rows, 2) and values.dtype == np.float32 else None


def _write(file: Path, values: NDArray[np.float32]) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(file) as beside, beside.open("wb") as target:
            np.save(target, values, allow_pickle=False)
    except OSError as error:  # a full or locked folder costs the next run its time, not this one its training
        logger.warning("The reference's log-probabilities could not be kept in %s: %s", file.parent, error)
