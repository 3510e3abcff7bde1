import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunesmith.config.coercion import (
    Boolean,
    ListOf,
    MappingOf,
    MismatchError,
    Number,
    PlainText,
    Text,
    Words,
    find_number,
    interpret_scalar,
    is_null,
    render_value,
)
from tunesmith.config.constraints import Range

FLOAT = Number(whole=False)
WHOLE = Number(whole=True)


@pytest.mark.parametrize("written", ["1e-4", "1E-4", "0.0001", ".0001", "1.0e-4", "+1e-04", 0.0001, PlainText("1e-4")])
def test_every_spelling_of_a_float_is_the_same_float(written):
    assert FLOAT.convert(written) == 0.0001


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_survives_being_written(number):
    assert FLOAT.convert(repr(number)) == number
    assert FLOAT.convert(PlainText(f"{number:.17E}")) == number


@given(st.integers())
def test_an_integer_survives_being_written(number):
    assert WHOLE.convert(str(number)) == number


@pytest.mark.parametrize(("written", "number"), [("8", 8), (8.0, 8), ("8.0", 8), ("1e3", 1000), ("1_000", 1000)])
def test_a_whole_number_may_be_written_as_a_decimal_one(written, number):
    converted = WHOLE.convert(written)
    assert converted == number
    assert type(converted) is int


@pytest.mark.parametrize(
    "written", ["eight", "8.5", 8.5, "", "0x10", "1:30", True, None, [], "nan", "1e999", float("inf")]
)
def test_what_is_no_whole_number_is_refused(written):
    with pytest.raises(MismatchError):
        WHOLE.convert(written)


@pytest.mark.parametrize("written", [True, "true", "True", "TRUE", "yes", "on", "y", "1", 1])
def test_spellings_of_true(written):
    assert Boolean().convert(written) is True


@pytest.mark.parametrize("written", [False, "false", "False", "no", "off", "0", 0, PlainText("n")])
def test_spellings_of_false(written):
    assert Boolean().convert(written) is False


@pytest.mark.parametrize("written", ["maybe", 2, 1.5, [], None, "tru"])
def test_what_is_no_boolean_is_refused(written):
    with pytest.raises(MismatchError):
        Boolean().convert(written)


def test_a_word_is_found_whatever_its_capitals():
    assert Words(("no", "steps")).convert("NO") == "no"


def test_a_misspelt_word_comes_with_the_nearest():
    with pytest.raises(MismatchError, match=r"Did you mean `cosine`\?"):
        Words(("linear", "cosine")).convert("cosin")


@pytest.mark.parametrize("value", [3, True, None, ["no"]])
def test_what_is_no_text_is_no_word(value):
    with pytest.raises(MismatchError):
        Words(("no", "3")).convert(value)


@given(st.lists(st.from_regex(r"[a-z_0-9.:/-]+", fullmatch=True)))
def test_a_list_and_a_comma_text_are_the_same(items):
    names = ListOf(Text())
    assert names.convert(items) == names.convert(", ".join(items)) == tuple(items)


def test_other_spellings_of_a_list():
    names = ListOf(Text())
    assert names.convert('["a", b]') == ("a", "b")
    assert names.convert(5) == ("5",)
    assert names.convert(("a,b",)) == ("a,b",)
    assert ListOf(Number(whole=True)).convert("1,2") == (1, 2)


def test_sentences_keep_their_commas():
    assert ListOf(Text(), keeps_commas=True).convert("Hello, who are you?") == ("Hello, who are you?",)


@pytest.mark.parametrize("written", ["[a", "[a]: b"])
def test_a_list_that_cannot_be_read_is_refused(written):
    with pytest.raises(MismatchError):
        ListOf(Text()).convert(written)


def test_text_keeps_digits_and_refuses_structures():
    assert Text().convert(2024) == "2024"
    assert Text().convert(True) == "true"
    assert Text().convert(PlainText("010")) == "010"
    with pytest.raises(MismatchError):
        Text().convert(["a"])


def test_a_path_may_start_at_home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert Text(is_path=True).convert("~/models") == "/home/ada/models"
    assert Text(is_path=True).convert("models/~x") == "models/~x"
    with pytest.raises(
        MismatchError, match=r"Nobody has a home folder that this could mean; write `\./~no-such-user/x`"
    ):
        Text(is_path=True).convert("~no-such-user/x")
    assert Text().convert("~/models") == "~/models"


def test_numbers_inside_a_mapping_are_numbers_however_they_are_written():
    written = {
        "a": "1e-4",
        "b": PlainText("1E-4"),
        "c": 0.0001,
        "d": PlainText("true"),
        "e": PlainText("null"),
        "f": "x",
    }
    assert MappingOf("scalar").convert(written) == {"a": 1e-4, "b": 1e-4, "c": 1e-4, "d": True, "e": None, "f": "x"}


def test_a_mapping_may_be_written_in_one_word():
    expected = {"min_lr": 1e-5, "num_cycles": 2}
    for written in ('{"min_lr": 1e-5, "num_cycles": 2}', "{min_lr: 1e-5, num_cycles: 2}", "min_lr=1e-5, num_cycles=2"):
        assert MappingOf("scalar").convert(written) == expected
    assert MappingOf("scalar").convert(["min_lr=1e-5", "num_cycles=2"]) == expected


def test_a_mapping_of_text_holds_text():
    assert MappingOf("text").convert({"name": PlainText("007"), "empty": None}) == {"name": "007", "empty": ""}


def test_a_tree_keeps_quoted_text_and_its_shape():
    written = {"a": {"file_name": "1.0", "num_samples": PlainText("10"), "many": [PlainText("x"), "2"]}}
    assert MappingOf("tree").convert(written) == {"a": {"file_name": "1.0", "num_samples": 10, "many": ["x", "2"]}}


@pytest.mark.parametrize("written", ["text", 3, None, "{a", "{a: b}: c", "=1", ["a", "b=1"]])
def test_what_is_no_mapping_is_refused(written):
    with pytest.raises(MismatchError):
        MappingOf("scalar").convert(written)


def test_structures_inside_a_flat_mapping_are_refused_with_their_place():
    with pytest.raises(MismatchError) as caught:
        MappingOf("scalar").convert({"a": {"b": 1}})
    assert caught.value.path == ("a",)


def test_a_flow_mapping_may_nest():
    assert MappingOf("tree").convert("{a: {b: [1, x]}}") == {"a": {"b": [1, "x"]}}


def test_null_words_mean_nothing_when_not_quoted():
    assert all(is_null(PlainText(word), quoted=False) for word in ("", "null", "Null", "none", "None", "~"))
    assert is_null(None, quoted=False)
    assert not is_null("null", quoted=False)
    assert is_null("null", quoted=True)
    assert not is_null("", quoted=True)
    assert not is_null(0, quoted=True)


def test_values_are_shown_as_written_and_shortened():
    assert render_value(None) == render_value(PlainText("")) == "empty (null)"
    assert render_value(True) == "true"
    assert render_value("1e-4") == "'1e-4'"
    assert render_value(PlainText("1e-4")) == "1e-4"
    assert len(render_value("x" * 200)) == 80


def test_scalars_of_other_types_become_text():
    assert interpret_scalar(b"x", numbers_in_quotes=True) == "b'x'"
    assert find_number(b"1") is None


@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        (Range(), ""),
        (Range(1), "1 or more"),
        (Range(0, low_open=True), "more than 0"),
        (Range(high=2), "2 or less"),
        (Range(high=2, high_open=True), "less than 2"),
        (Range(0, 1), "from 0 to 1"),
        (Range(0, 1, high_open=True), "0 or more and less than 1"),
        (Range(0, 1, low_open=True), "more than 0 and at most 1"),
    ],
)
def test_ranges_in_words(allowed, words):
    assert Number(whole=False, allowed=allowed).render() == f"a number{', ' + words if words else ''}"


@pytest.mark.parametrize(
    ("allowed", "inside", "outside"),
    [
        (Range(0, 1), (0, 1), (-0.1, 1.1)),
        (Range(0, 1, low_open=True, high_open=True), (0.5,), (0, 1)),
        (Range(high=1), (-5, 1), (2,)),
    ],
)
def test_ranges_hold_their_ends(allowed, inside, outside):
    assert all(allowed.contains(number) for number in inside)
    assert not any(allowed.contains(number) for number in outside)
