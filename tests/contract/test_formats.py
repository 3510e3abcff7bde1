"""Every registered format: a good row becomes a record, any other row is dropped with a reason and never raises."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from tests.unit.data.formats.specs import spec_of
from tunesmith.config.objective import PAIR_STAGES
from tunesmith.data.encoding import ChunkEncoder
from tunesmith.data.formats import FORMATS, build_format
from tunesmith.data.records import Conversation, Document, Dropped, Feedback, Preference
from tunesmith.data.selection import RawChunk
from tunesmith.data.sources import RawRow

GOOD = {
    ("alpaca", "sft"): {"instruction": "Add.", "input": "1 and 2", "output": "3"},
    ("alpaca", "pt"): {"instruction": "Some text."},
    ("text", "pt"): {"text": "Some text."},
    ("sharegpt", "sft"): {"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]},
    ("openai", "sft"): {"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]},
}
PAIRS = {
    "alpaca": {"instruction": "Add.", "chosen": "3", "rejected": "4"},
    "sharegpt": {
        "conversations": [{"from": "human", "value": "Q"}],
        "chosen": {"from": "gpt", "value": "A"},
        "rejected": {"from": "gpt", "value": "B"},
    },
    "openai": {
        "messages": [{"role": "user", "content": "Q"}],
        "chosen": [{"role": "assistant", "content": "A"}],
        "rejected": [{"role": "assistant", "content": "B"}],
    },
}
for formatting, pair in PAIRS.items():
    GOOD.update({(formatting, stage): pair for stage in PAIR_STAGES})
    GOOD[formatting, "kto"] = {**GOOD[formatting, "sft"], "label": True}
RECORDS = {"pt": Document, "sft": Conversation, "rm": Preference, "dpo": Preference, "kto": Feedback}
KEYS = sorted(FORMATS)

# Values of the wrong type, and structures that begin right and go wrong further inside.
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
NAMES = st.sampled_from(
    ["from", "value", "role", "content", "type", "text", "tool_calls", "function", "name", "arguments", "weight"]
)
WORDS = st.sampled_from(["human", "gpt", "user", "assistant", "tool", "system", "function_call", "text", "{}", "[1"])
VALUES = st.recursive(
    SCALARS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


class NoEncoder:
    def encode(self, records):
        return [[] for _ in records]


def format_of(formatting, stage):
    return build_format(spec_of(formatting, ranking=stage in PAIR_STAGES), stage)


def test_the_examples_of_this_suite_cover_every_registered_format():
    assert set(GOOD) == set(FORMATS)


@pytest.mark.parametrize(("formatting", "stage"), KEYS)
def test_a_good_row_becomes_a_record(formatting, stage):
    record = format_of(formatting, stage)(GOOD[formatting, stage])
    assert isinstance(record, RECORDS[stage])
    if isinstance(record, Conversation):
        assert record.messages[-1].role == "assistant"


@pytest.mark.parametrize(("formatting", "stage"), KEYS)
def test_an_empty_row_is_dropped_with_a_reason(formatting, stage):
    dropped = format_of(formatting, stage)({})
    assert isinstance(dropped, Dropped)
    assert dropped.reason


@pytest.mark.parametrize("value", [3, True, {"a": 1}, [1, None], [[]], [{}]], ids=json.dumps)
@pytest.mark.parametrize(("formatting", "stage"), KEYS)
def test_an_ill_typed_row_is_dropped_with_a_reason(formatting, stage, value):
    dropped = format_of(formatting, stage)(dict.fromkeys(GOOD[formatting, stage], value))
    assert isinstance(dropped, Dropped)
    assert dropped.reason


@pytest.mark.parametrize(("formatting", "stage"), KEYS)
def test_no_row_raises(formatting, stage):
    convert = format_of(formatting, stage)
    columns = [*GOOD[formatting, stage], "history", "system", "tools"]

    @limits(max_examples=60, deadline=None)
    @given(st.dictionaries(st.sampled_from(columns), VALUES, max_size=4))
    def holds(row):
        assert isinstance(convert(row), Conversation | Document | Preference | Feedback | Dropped)

    holds()


@pytest.mark.parametrize(("formatting", "stage"), KEYS)
def test_what_was_dropped_is_reported_with_file_and_row(formatting, stage, tmp_path):
    file = tmp_path / "rows.json"
    rows = [RawRow(0, file, GOOD[formatting, stage]), RawRow(1, file, {})]
    spec = replace(spec_of(formatting, ranking=stage in PAIR_STAGES), files=(file,))
    _, tally = ChunkEncoder(spec, stage, NoEncoder())(RawChunk(first_row=0, rows=rows))
    assert (tally.read, tally.used) == (2, 1)
    ((shown,),) = tally.shown.values()
    assert shown.startswith("rows.json row 2")
