import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunesmith.config.coercion import PlainText
from tunesmith.config.files import parse_json, parse_yaml, read_document
from tunesmith.errors import ConfigError


def test_each_key_knows_its_line():
    document = parse_yaml(
        "# comment\nseed: 1\n\ndataset_info:\n  a:\n    file_name: x.json\n  b: [1,\n 2]\n", "run.yaml"
    )
    assert document.values == {"seed": "1", "dataset_info": {"a": {"file_name": "x.json"}, "b": ["1", "2"]}}
    assert document.where("seed") == "run.yaml:2"
    assert document.where("dataset_info", "a", "file_name") == "run.yaml:6"
    assert document.where("dataset_info", "b", "1") == "run.yaml:8"
    assert document.where("other") == "run.yaml"


def test_only_text_without_quotes_is_plain():
    values = parse_yaml("a: no\nb: \"no\"\nc: 'no'\nd: |\n  no\n", "x.yaml").values
    assert [isinstance(value, PlainText) for value in values.values()] == [True, False, False, False]


def test_anchors_and_merge_keys_work_and_own_keys_win():
    text = "base: &base\n  seed: 1\n  plot_loss: true\nsft_args:\n  <<: *base\n  seed: 2\n"
    document = parse_yaml(text, "x.yaml")
    assert document.values["sft_args"] == {"seed": "2", "plot_loss": "true"}
    assert document.problems == ()


def test_a_key_written_twice_is_a_problem_with_both_lines():
    (problem,) = parse_yaml("seed: 1\nstage: sft\nseed: 2\n", "x.yaml").problems
    assert str(problem) == "x.yaml:3: `seed` is written twice, first on line 1; remove one of them."
    (problem,) = parse_json('{"seed": 1,\n "seed": 2}', "x.json").problems
    assert str(problem) == "x.json:2: `seed` is written twice, first on line 1; remove one of them."


def test_an_empty_file_says_nothing():
    assert parse_yaml("# nothing\n", "x.yaml").values == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: [1\n", r"x.yaml:3: this is not YAML: .*flow sequence"),
        ("a: 1\n\tb: 2\n", r"x.yaml:2: this is not YAML: there is a tab where YAML takes spaces only"),
        ("a: &x [*x]\n", r"x.yaml:1: this is not YAML: a value contains itself"),
        ("? [a, b]\n: 1\n", r"x.yaml:1: this is not YAML: a key has to be a single word"),
        ("a: 1\n---\nb: 2\n", r"x.yaml:2: this is not YAML: .*another document"),
        ("a: 1\nb: \x01\n", r"x.yaml:2: a control character 0x1 is no text"),
        ("- a\n", r"x.yaml: the file has to be a list of `key: value` lines"),
        ("just text\n", r"x.yaml: the file has to be a list of `key: value` lines"),
    ],
)
def test_what_is_no_configuration_in_yaml_is_refused_with_the_line(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_yaml(text, "x.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"x.json:1: this is not JSON: Expecting value"),
        ('{\n"a": 1,\n}', r"x.json:3: this is not JSON: Expecting a property name"),
        ('{"a" 1}', r"x.json:1: this is not JSON: Expecting ':'"),
        ('{"a": 1 "b": 2}', r"x.json:1: this is not JSON: Expecting ','"),
        ('{"a": [1 2]}', r"x.json:1: this is not JSON: Expecting ','"),
        ('{"a": 1} x', r"x.json:1: this is not JSON: Extra data"),
        ("[1]", r"x.json: the file has to be a list of `key: value` lines"),
        ('{"a": tru}', r"x.json:1: this is not JSON"),
    ],
)
def test_what_is_no_configuration_in_json_is_refused_with_the_line(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_json(text, "x.json")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON_VALUES, max_size=4), st.sampled_from([None, 1, "\t"]))
def test_json_is_read_as_the_standard_library_reads_it(values, indent):
    assert parse_json(json.dumps(values, indent=indent), "x.json").values == json.loads(json.dumps(values))


def test_json_keys_know_their_lines():
    document = parse_json('{\n  "a": {\n    "b": [],\n    "c": {}\n  }\n}', "x.json")
    assert document.where("a", "c") == "x.json:4"


def test_a_file_is_read_by_its_ending(tmp_path):
    (tmp_path / "a.json").write_text('{"seed": 1}')
    (tmp_path / "a.YML").write_text("﻿seed: 1", encoding="utf-8")
    assert read_document(tmp_path / "a.json").values == {"seed": 1}
    assert read_document(tmp_path / "a.YML").values == {"seed": "1"}


def test_files_that_cannot_be_read_are_refused(tmp_path):
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9\n")
    (tmp_path / "run.toml").write_text("")
    for name, message in [
        ("none.yaml", "there is no such file"),
        ("folder.yaml", "this is a folder"),
        ("latin.yaml", "cannot be read as UTF-8 text"),
        ("run.toml", r"ends in .yaml, .yml, .json"),
    ]:
        with pytest.raises(ConfigError, match=message):
            read_document(tmp_path / name)
