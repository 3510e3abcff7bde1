import json

import pytest

from tunesmith.cli.model_arguments import expand_model_arguments, find_adapter_base
from tunesmith.config import load_config
from tunesmith.errors import ConfigError, ModelError

FLAGS = {"--adapter": "adapter_name_or_path", "--system": "default_system"}


def expand(*words: str, positional=("model_name_or_path", "export_dir")) -> list[str]:
    return expand_model_arguments(words, positional=positional, flags=FLAGS)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["base"], ["--model_name_or_path", "base"]),
        (["base", "out"], ["--model_name_or_path", "base", "--export_dir", "out"]),
        (
            ["base", "--adapter", "a", "out"],
            ["--model_name_or_path", "base", "--export_dir", "out", "--adapter_name_or_path", "a"],
        ),
        (
            ["base", "--adapter=a", "--adapter", "b"],
            ["--model_name_or_path", "base", "--adapter_name_or_path", "a", "b"],
        ),
        (["base", "--system", "Be brief."], ["--model_name_or_path", "base", "--default_system", "Be brief."]),
        (["base", "top_p=0.5", "--top_k", "3"], ["--model_name_or_path", "base", "top_p=0.5", "--top_k", "3"]),
        (["--lora_target", "q", "v", "--top_k=3"], ["--lora_target", "q", "v", "--top_k=3"]),
        (["run.yaml"], ["run.yaml"]),
        (["run.yaml", "out", "top_k=3"], ["run.yaml", "--export_dir", "out", "top_k=3"]),
        ([], []),
    ],
)
def test_short_forms_become_settings(words, expected):
    assert expand(*words) == expected


def test_too_many_words_are_refused():
    with pytest.raises(ConfigError, match=r"Too many words: more words\. Expected model_name_or_path export_dir"):
        expand("base", "out", "more", "words")


def test_a_flag_without_its_value_is_refused():
    with pytest.raises(ConfigError, match=r"--adapter stands at the end of the command line without its value"):
        expand("base", "--adapter")


def write_adapter(folder, **settings):
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return str(folder)


def test_the_folder_of_an_adapter_stands_for_its_model_and_itself(tmp_path):
    adapter = write_adapter(tmp_path / "run", base_model_name_or_path="models/base")
    assert expand(adapter, "--adapter", "second") == [
        "--model_name_or_path",
        "models/base",
        "--adapter_name_or_path",
        adapter,
        "second",
    ]


def test_an_unknown_setting_after_an_adapter_is_no_adapter(tmp_path):
    words = expand(write_adapter(tmp_path / "run", base_model_name_or_path="a/base"), "max_new_token=3", "top_k=2")
    with pytest.raises(
        ConfigError, match=r"`max_new_token` is not a setting\. Did you mean `max_new_tokens`\?"
    ) as caught:
        load_config(None, words, environ={}, purpose="generate")
    assert len(caught.value.problems) == 1


def test_an_adapter_that_does_not_name_its_model_is_refused_with_the_way_out(tmp_path):
    adapter = write_adapter(tmp_path / "run", base_model_name_or_path=None)
    with pytest.raises(ConfigError, match=r"does not name its base model\. Name both: MODEL --adapter ADAPTER"):
        expand(adapter)


@pytest.mark.parametrize("content", ['{"base_model_name_or_path": "ba', b"\xff\xfe"])
def test_an_adapter_whose_settings_are_damaged_is_named(tmp_path, content):
    path = tmp_path / "adapter_config.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ModelError, match=r"adapter_config\.json cannot be read as JSON"):
        find_adapter_base(tmp_path)


def test_a_whole_model_with_an_adapter_file_beside_it_is_a_model(tmp_path):
    folder = write_adapter(tmp_path / "run", base_model_name_or_path="base")
    (tmp_path / "run" / "config.json").write_text("{}")
    assert expand(folder) == ["--model_name_or_path", folder]
    assert find_adapter_base(tmp_path / "none") is None


def test_an_adapter_whose_model_has_moved_says_how_to_name_it(tmp_path):
    adapter = write_adapter(tmp_path / "run", base_model_name_or_path=str(tmp_path / "gone"))
    with pytest.raises(ConfigError, match=r"the model \S*gone, which is not there any more.*--adapter \S*run"):
        expand(adapter)
    assert expand("elsewhere", "--adapter", adapter)[:2] == ["--model_name_or_path", "elsewhere"]
