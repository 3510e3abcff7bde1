import pytest
from datasets import ReadInstruction

from tunesmith.data.sources.ranges import parse_split
from tunesmith.errors import DataError


def no_count():
    raise AssertionError("the rows were counted without need")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("train", (0, None)), ("train[:10]", (0, 10)), ("train[5:]", (5, None)), ("test[2:3]", (2, 3))],
)
def test_plain_ranges_need_no_count(text, expected):
    assert parse_split(text, "toy").resolve(no_count) == expected


@pytest.mark.parametrize("total", [0, 1, 7, 99, 1000])
@pytest.mark.parametrize("borders", ["[:10%]", "[33%:66%]", "[-5:]", "[:-1]", "[-10%:]", "[:3]", "[90%:100%]"])
def test_ranges_are_those_of_the_library_datasets(borders, total):
    (expected,) = ReadInstruction.from_spec(f"train{borders}").to_absolute({"train": total})
    first, last = parse_split(f"train{borders}", "toy").resolve(lambda: total)
    assert range(total)[first:last] == range(total)[expected.from_ : expected.to]


def test_several_splits_are_named_one_after_the_other():
    assert parse_split("train + test", "toy").names == ("train", "test")


@pytest.mark.parametrize("text", ["", "train[", "train[a:b]", "train[:1.5]", "+", "train[:10%"])
def test_anything_else_is_refused(text):
    with pytest.raises(DataError, match=r"toy: split is .* allowed is the name of a split"):
        parse_split(text, "toy")
