import pytest

from tunesmith.config import load_config
from tunesmith.errors import ConfigError

RUN = """
model_name_or_path: org/name
output_dir: out
do_train: true
dataset_info: {listed: {file_name: l.json}}
dataset:
  - listed
  - {file_name: chats/one.v2.jsonl.gz, formatting: sharegpt}
  - {name: my chats, hf_hub_url: owner/two, columns: {messages: talk}}
  - {file_name: other/one.json}
"""


def load(tmp_path, text=RUN, **overrides):
    (tmp_path / "run.yaml").write_text(text)
    written = [f"{key}={value}" for key, value in overrides.items()]
    return load_config(tmp_path / "run.yaml", written, environ={}, purpose="read")


def test_a_description_in_place_of_a_name_becomes_an_entry_of_the_catalogue(tmp_path):
    data = load(tmp_path).data
    assert data.dataset == ("listed", "one", "my_chats", "one_2")
    assert data.dataset_info == {
        "listed": {"file_name": "l.json"},
        "one": {"file_name": "chats/one.v2.jsonl.gz", "formatting": "sharegpt"},
        "my_chats": {"hf_hub_url": "owner/two", "columns": {"messages": "talk"}},
        "one_2": {"file_name": "other/one.json"},
    }


def test_what_is_saved_of_it_loads_to_the_same(tmp_path):
    config = load(tmp_path)
    assert load(tmp_path, config.to_yaml()) == config


def test_a_mistake_in_a_description_is_shown_where_it_stands(tmp_path):
    with pytest.raises(ConfigError, match=r"run.yaml:8: `dataset_info.one.colums` is not a key of a data set"):
        load(tmp_path, RUN.replace("formatting: sharegpt", "colums: {}"))


def test_names_and_lists_without_descriptions_stay_as_they_are(tmp_path):
    data = load(tmp_path, dataset="[listed, hub:owner/name]", eval_dataset="s3://bucket/rows").data
    assert (data.dataset, data.eval_dataset) == (("listed", "hub:owner/name"), ("s3://bucket/rows",))


def test_descriptions_belong_into_a_file(tmp_path):
    with pytest.raises(ConfigError, match=r"or, in a file, a description such as \{file_name: rows.jsonl\}"):
        load(tmp_path, dataset="[{file_name: a.json}]")


def test_a_description_takes_no_name_that_means_something_else(tmp_path):
    text = """
model_name_or_path: org/name
dataset_info: {listed: {file_name: l.json}}
dataset: [{file_name: a/chats.json}, {file_name: a/listed.json}]
eval_dataset: chats
"""
    data = load(tmp_path, text).data
    assert (data.dataset, data.eval_dataset) == (("chats_2", "listed_2"), ("chats",))
    assert data.dataset_info["listed"] == {"file_name": "l.json"}
    assert "chats" not in data.dataset_info
