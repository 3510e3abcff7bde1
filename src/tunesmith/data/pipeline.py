"""From the catalogue to data sets that are ready to train on, in order."""

from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedTokenizerBase

from tunesmith.config import RunConfig
from tunesmith.config.objective import PAIR_STAGES
from tunesmith.data.account import DataReport, PackingReport, build_set_report
from tunesmith.data.chat import ChatTemplate
from tunesmith.data.loading.datasets import ExampleDataset, PackedDataset, Part
from tunesmith.data.loading.feedback import FeedbackDataset, note_one_sided
from tunesmith.data.mixing import SetShare, mix_sets
from tunesmith.data.packing import Packs, best_fit_decreasing, concatenate_and_cut
from tunesmith.data.preparation import Preparation
from tunesmith.data.prepared import EVAL_NAME, PreparedData, PreparedSet, TrainableDataset
from tunesmith.data.selection import count_uses
from tunesmith.data.splits import hold_back
from tunesmith.data.streaming.preparation import open_stream, report_streams
from tunesmith.data.tokenized import obtain_sets
from tunesmith.errors import DataError
from tunesmith.runtime.ranks import Ranks


def prepare_data(
    config: RunConfig,
    tokenizer: PreTrainedTokenizerBase,
    template: ChatTemplate | None,
    ranks: Ranks | None = None,
) -> PreparedData:
    """Read, encode, split and pack all data of a run; what was encoded before comes from the cache.

    Every process of a run calls this and gets the same rows in the same order. One of them does the work.

    Args:
        config: The run.
        tokenizer: Turns text into ids.
        template: Renders conversations; not needed for plain text.
        ranks: Place of this process in the run.

    Raises:
        DataError: A data set is unknown, unreadable or of the wrong kind, or leaves nothing to train on.
    """
    preparation = Preparation(config, tokenizer, template, ranks or Ranks())
    stream = open_stream(config, preparation) if config.data.streaming and config.data.dataset else None
    sets = obtain_sets(preparation)
    train = _examples(sets, "train")
    evaluation = _examples(sets, "eval")
    held_back = 0
    if config.data.val_size and train is not None:
        kept, chosen = hold_back(train.row_ids, config.data.val_size, config.training.seed)
        train, evaluation, held_back = train.select(kept), train.select(chosen), len(chosen)
    for role, examples in (("train on", train), ("evaluate on", evaluation)):
        _check_trained(examples, role)
    shares: tuple[SetShare, ...] = ()
    if train is not None:
        train, shares = _mix(train, sets, config)
    completed = None if train is None else _completed(train, config)
    if isinstance(completed, FeedbackDataset) and preparation.ranks.is_main:
        note_one_sided(completed)
    packed_train = None if completed is None else _pack(completed, config)
    evals = {} if evaluation is None else {EVAL_NAME: _pack_for_evaluation(_completed(evaluation, config), config)}
    report = DataReport(
        sets=tuple(
            build_set_report(item.spec.name, item.role, item.tally, item.rows.lengths, item.rows.trained_tokens)
            for item in sets
        ),
        train_examples=0 if train is None else len(train),
        eval_examples=0 if evaluation is None else len(evaluation),
        held_back_examples=held_back,
        packing=_packing_report(packed_train, _capacity(config)),
        streams=() if stream is None else report_streams(stream),
        max_samples=config.data.max_samples,
        mix_strategy=config.data.mix_strategy,
        shares=shares,
    )
    return PreparedData(packed_train, evals, report, sets, stream)


def _examples(sets: Sequence[PreparedSet], role: str) -> ExampleDataset | None:
    parts = [Part(item.rows, item.first_row_id) for item in sets if item.role == role]
    return ExampleDataset(parts) if parts else None


def _mix(
    train: ExampleDataset, sets: Sequence[PreparedSet], config: RunConfig
) -> tuple[ExampleDataset, tuple[SetShare, ...]]:
    """Put the rows of all data sets in the order and number in which a run uses them."""
    trained = [item for item in sets if item.role == "train"]
    row_ids = train.row_ids
    first_ids = [item.first_row_id for item in trained]
    set_numbers = np.searchsorted(first_ids, row_ids, side="right") - 1
    uses = [count_uses(item.spec, item.tally.read, config.training.seed) for item in trained]
    if config.data.mix_strategy == "concat" and all(own is None for own in uses):
        return train, ()
    rows_left = [np.unique(row_ids[set_numbers == number]) for number in range(len(trained))]
    mixture = mix_sets(
        [item.spec.name for item in trained],
        set_numbers,
        row_ids,
        [
            None if own is None else own[left - first]
            for own, left, first in zip(uses, rows_left, first_ids, strict=True)
        ],
        strategy=config.data.mix_strategy,
        probabilities=config.data.interleave_probs,
        seed=config.training.seed,
    )
    return train.select(mixture.indices), mixture.shares


def _completed(examples: ExampleDataset, config: RunConfig) -> ExampleDataset | FeedbackDataset:
    """Give each rated completion a mismatched one, after rows were held back: no set reads from the other."""
    return FeedbackDataset(examples, config.data.cutoff_len) if config.objective.stage == "kto" else examples


def _pack(examples: ExampleDataset | FeedbackDataset, config: RunConfig) -> TrainableDataset:
    if not config.packs:
        return examples
    lengths = examples.lengths
    if config.objective.stage == "pt":
        return PackedDataset(examples, concatenate_and_cut(lengths, config.data.cutoff_len))
    if isinstance(examples, ExampleDataset):
        lengths = lengths + examples.prompt_ends  # a pair is two sequences that each have the prompt
    return PackedDataset(examples, Packs.of_whole_rows(best_fit_decreasing(lengths, _capacity(config)), lengths))


def _capacity(config: RunConfig) -> int:
    """Return the tokens that a packed row may hold; either sequence of a pair may have `cutoff_len`."""
    return config.data.cutoff_len * (2 if config.objective.stage in PAIR_STAGES else 1)


def _pack_for_evaluation(examples: ExampleDataset | FeedbackDataset, config: RunConfig) -> TrainableDataset:
    """Documents are cut to blocks; conversations stay single, since predictions are made for each."""
    return _pack(examples, config) if config.objective.stage == "pt" else examples


def _packing_report(dataset: TrainableDataset | None, capacity: int) -> PackingReport | None:
    if not isinstance(dataset, PackedDataset):
        return None
    return PackingReport(
        packs=len(dataset), capacity=capacity, tokens=int(dataset.lengths.sum()), samples=len(dataset.packs.rows)
    )


def _check_trained(examples: ExampleDataset | None, purpose: str) -> None:
    if examples is not None and not np.any(examples.trained_tokens):
        raise DataError(
            f"Not one token to {purpose} is left of {len(examples):,} rows: all answers are empty or were cut away. "
            "Raise cutoff_len, or give the rows answers."
        )
