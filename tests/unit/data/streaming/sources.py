"""Streams of texts for the tests of this package."""

from tests.tiny.tokenizers import byte_level_tokenizer
from tunesmith.data.encoding import ChunkEncoder
from tunesmith.data.streaming.mixing import Mixing
from tunesmith.data.streaming.places import render_streamed_place
from tunesmith.data.streaming.source import StreamOptions, StreamSource
from tunesmith.data.tokenization import EncodingOptions, build_encoder


def text_source(*specs, packing="none", capacity=32, **settings):
    """A stream of documents."""
    tokenizer = byte_level_tokenizer()
    options = EncodingOptions(stage="pt", cutoff_len=capacity, packing=packing == "cut")
    encoder = build_encoder(tokenizer, None, options)
    chosen = {
        "seed": 3,
        "is_shuffled": True,
        "buffer_size": 10,
        "window_rows": 4,
        "mixing": Mixing(),
        "packing": packing,
        "capacity": capacity,
        "epochs": None,
        "piece_rows": 3,
        **settings,
    }
    encoders = tuple(ChunkEncoder(spec, "pt", encoder, render_streamed_place) for spec in specs)
    return StreamSource(encoders, StreamOptions(**chosen))


def ids_of(item):
    """The row ids and tokens of an item, to compare."""
    samples = item if isinstance(item, list) else [item]
    return [(sample["row_id"], sample["input_ids"].tolist(), sample["trained_spans"].tolist()) for sample in samples]


def items_of(stream, count=None):
    """The next items of a stream, to compare."""
    found = []
    while (count is None or len(found) < count) and (item := stream.next_item()) is not None:
        found.append(ids_of(item))
    return found
