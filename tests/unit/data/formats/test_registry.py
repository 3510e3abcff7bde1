from typing import get_args

import pytest

from tests.unit.data.formats.specs import spec_of
from tunesmith.config.catalogue import Formatting
from tunesmith.data.formats import FORMATS, build_format
from tunesmith.data.records import Dropped, Preference
from tunesmith.errors import DataError


def test_every_format_serves_some_stage():
    assert {formatting for formatting, _ in FORMATS} == set(get_args(Formatting))


@pytest.mark.parametrize(
    ("formatting", "stage", "message"),
    [
        ("text", "sft", "format text, which serves stage pt; stage sft takes alpaca or openai or sharegpt"),
        ("sharegpt", "pt", "format sharegpt, which serves stage sft, rm, dpo, kto; stage pt takes alpaca or text"),
    ],
)
def test_format_without_anything_to_learn_for_a_stage_is_refused(formatting, stage, message):
    with pytest.raises(DataError, match=message):
        build_format(spec_of(formatting), stage)


def test_stages_of_pairs_refuse_what_is_said_to_be_no_ranking():
    with pytest.raises(DataError, match=r"data set 'toy' holds none \(ranking: false\)"):
        build_format(spec_of("sharegpt", ranking=False), "dpo")


def test_rows_show_themselves_that_they_are_pairs():
    row = {"instruction": "Q", "chosen": "A", "rejected": "B"}
    assert isinstance(build_format(spec_of("alpaca"), "dpo")(row), Preference)


def test_rankings_are_refused():
    with pytest.raises(DataError, match="'toy' holds rankings"):
        build_format(spec_of("sharegpt", ranking=True), "sft")


def test_a_row_that_is_nested_without_end_is_dropped_like_any_other():
    inner = []
    for _ in range(100_000):
        inner = [inner]
    dropped = build_format(spec_of("alpaca"), "sft")({"instruction": "Q", "output": inner})
    assert dropped == Dropped("wrong type", "the values are nested too deeply")
