"""The stream of a run, opened once to see that its rows can be used."""

from itertools import chain

import numpy as np

from tunesmith.config import RunConfig
from tunesmith.data.account import StreamReport
from tunesmith.data.batches import Example
from tunesmith.data.encoding import ChunkEncoder
from tunesmith.data.preparation import Preparation, check_has_rows
from tunesmith.data.requested import resolve_requested
from tunesmith.data.sources import peek_rows
from tunesmith.data.streaming.mixing import Mixing
from tunesmith.data.streaming.places import render_streamed_place
from tunesmith.data.streaming.source import StreamOptions, StreamSource
from tunesmith.data.streaming.windows import Item
from tunesmith.errors import DataError

_LOOKED_AT = 200
"""Rows of which one at least must have something to learn."""


def open_stream(config: RunConfig, preparation: Preparation) -> StreamSource:
    """Return what a run streams.

    Raises:
        DataError: A data set is unknown, unreadable, or without a row that can be used, or none of the first rows has a
            token to learn.
    """
    specs = resolve_requested(config).trained
    encoders = []
    for spec in specs:
        check_has_rows(spec, bool(peek_rows(spec.files)))
        encoder = preparation.chunk_encoder(spec)
        encoders.append(ChunkEncoder(spec, encoder.stage, encoder.encoder, render_streamed_place))
    source = StreamSource(tuple(encoders), build_options(config))
    _check_learnt(source)
    return source


def build_options(config: RunConfig) -> StreamOptions:
    """Return how the rows of a run are streamed."""
    training, loading = config.training, config.loading
    packing = "none"
    if config.packs:
        packing = "cut" if config.objective.stage == "pt" else "whole"
    return StreamOptions(
        seed=training.seed if training.data_seed is None else training.data_seed,
        is_shuffled=not (loading.disable_shuffling or loading.train_sampling_strategy == "sequential"),
        buffer_size=config.data.buffer_size,
        window_rows=min(loading.preprocessing_batch_size, config.data.buffer_size),
        mixing=Mixing(config.data.mix_strategy, config.data.interleave_probs),
        packing=packing,
        capacity=config.data.cutoff_len,
        epochs=int(np.ceil(training.num_train_epochs)) if config.origin("num_train_epochs").is_set else None,
    )


def report_streams(source: StreamSource) -> tuple[StreamReport, ...]:
    """Return what is known of the data sets before they are read."""
    return tuple(
        StreamReport(spec.name, len(spec.files), sum(file.stat().st_size for file in spec.files))
        for spec in source.specs
    )


def _check_learnt(source: StreamSource) -> None:
    items = source.peek(_LOOKED_AT)
    if not any(len(example["trained_spans"]) for example in chain.from_iterable(map(_as_list, items))):
        raise DataError(
            f"Not one token to train on is in the first {len(items):,} rows: all answers are empty or were cut away. "
            "Raise cutoff_len, or give the rows answers."
        )


def _as_list(item: Item) -> list[Example]:
    return item if isinstance(item, list) else [item]
