"""Model, tokenizer and template of a configuration, in one piece."""

import pytest

from tests.tiny.runs import CHATML, write_model
from tests.tiny.tokenizers import byte_level_tokenizer
from tunesmith.config import load_config
from tunesmith.inference.load import load_generator, load_run_tokenizer


def write_adapter(folder, *, template=None):
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text("{}", encoding="utf-8")
    if template is not None:
        byte_level_tokenizer(chat_template=template).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def base(tmp_path):
    return write_model(tmp_path / "base")


@pytest.fixture
def configure(base):
    def build(**settings):
        values = {"model_name_or_path": str(base), "use_cpu": True, **settings}
        return load_config(values, purpose="generate", environ={})

    return build


def test_the_tokenizer_is_that_of_the_last_adapter_that_has_one(configure, tmp_path):
    first = write_adapter(tmp_path / "first", template="{{ 1 }}")
    second = write_adapter(tmp_path / "second", template="{{ 2 }}")
    bare = write_adapter(tmp_path / "bare")
    for adapters, expected in ([], CHATML), ([bare], CHATML), ([first, second, bare], "{{ 2 }}"):
        assert load_run_tokenizer(configure(adapter_name_or_path=adapters)).chat_template == expected


def test_the_tokenizer_of_an_adapter_on_a_hub_is_found_in_the_users_cache(configure, tmp_path):
    repository = tmp_path / "cache" / "models--org--chatty"
    write_adapter(repository / "snapshots" / ("c" * 40), template="{{ 3 }}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("c" * 40, encoding="utf-8")
    config = configure(adapter_name_or_path="org/chatty", cache_dir=str(tmp_path / "cache"))
    assert load_run_tokenizer(config).chat_template == "{{ 3 }}"


def test_a_generator_stops_at_the_end_marker_of_its_template(configure):
    loaded = load_generator(configure(max_new_tokens=3, do_sample=False))
    assert loaded.template.end_markers[0] == "<|im_end|>"
    assert 2 in loaded.generator.stop_ids
    (answer,) = loaded.generator.generate([[5, 6, 7]], loaded.options)
    assert len(answer) <= 3


def test_a_temperature_of_0_is_greedy(configure):
    assert not configure(temperature=0.0).generation.draws_tokens
    assert configure().generation.draws_tokens
