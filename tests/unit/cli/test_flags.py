import pytest

from tunesmith.cli.flags import check_no_words, take_count, take_switches, take_value
from tunesmith.errors import ConfigError


def test_switches_are_taken_out_wherever_they_stand():
    assert take_switches(["--json", "run.yaml", "--all"], ["--json", "--csv"]) == ({"--json"}, ["run.yaml", "--all"])


@pytest.mark.parametrize("words", [["a", "--row", "7", "b"], ["a", "--row=7", "b"]])
def test_a_value_stands_behind_its_flag_or_in_it(words):
    assert take_value(words, "--row") == ("7", ["a", "b"])
    assert take_count(words, "--row") == (7, ["a", "b"])
    assert take_count(words, "--random") == (None, words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--row"], "--row has no value"),
        (["--row", "--json"], "--row has no value"),
        (["--row", "1", "--row=2"], "--row is there twice"),
        (["--row", "0"], "--row is '0'; allowed is a whole number from 1 on"),
        (["--row", "x"], "--row is 'x'"),
    ],
)
def test_what_is_no_number_is_refused(words, message):
    with pytest.raises(ConfigError, match=message):
        take_count(words, "--row")


def test_words_behind_a_command_that_takes_none_are_refused():
    check_no_words("env", [])
    with pytest.raises(ConfigError, match=r"`env` takes nothing after it; there is '--all now'"):
        check_no_words("env", ["--all", "now"])
