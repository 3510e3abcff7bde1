"""An adapter knows the model it was trained beside, by its weights and not by its name alone."""

import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tests.tiny.models import tiny_model
from tunesmith.config import AdapterConfig
from tunesmith.models.adapters import apply_adapters
from tunesmith.models.adapters.record import RECORD_FILE, BaseRecord
from tunesmith.models.reward.build import build_reward_model


def adapt(model, adapters=(), *, is_trainable=True, **settings):
    config = AdapterConfig(**settings)
    return apply_adapters(model, config, adapters, trained_dtype=torch.float32, is_trainable=is_trainable)


def named(name: str, **settings):
    model = tiny_model("llama", **settings)
    model.name_or_path = name
    return model


def saved(folder, model, adapters=(), **settings) -> str:
    adapted = adapt(model, adapters, **settings).model
    torch.manual_seed(1)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data.normal_(0, 0.2)
    adapted.save_pretrained(folder)
    return str(folder)


def test_the_record_comes_back_as_it_was_written(tmp_path):
    record = BaseRecord.of(named("org/toy"), "org/toy", 420, ("first",))
    record.save(tmp_path)
    assert BaseRecord.load(tmp_path) == record
    assert record.find_difference(record) is None
    assert len(record.samples) >= 15
    assert all(len(values) == 4 for values in record.samples.values())


@pytest.mark.parametrize("content", [None, "no json", "{}", "[]", '{"samples": 3}'])
def test_what_is_no_record_is_none(tmp_path, content):
    if content is not None:
        (tmp_path / RECORD_FILE).write_text(content)
    assert BaseRecord.load(tmp_path) is None


def test_rounding_is_no_difference_and_another_seed_is():
    exact = BaseRecord.of(named("a"), "a", 420)
    rounded = BaseRecord.of(named("a").to(torch.bfloat16), "a", 420)
    assert (exact.dtype, rounded.dtype) == ("float32", "bfloat16")
    assert exact.find_difference(rounded) is None
    assert rounded.find_difference(exact) is None
    assert exact.find_difference(BaseRecord.of(named("a", seed=1), "a", 420)) is not None


def test_a_grown_vocabulary_is_the_same_model():
    model = named("a")
    before = BaseRecord.of(model, "a", 420)
    model.resize_token_embeddings(448, mean_resizing=False)
    assert before.find_difference(BaseRecord.of(model, "a", 448)) is None


@pytest.mark.parametrize("is_trainable", [True, False])
def test_other_weights_under_the_same_name_are_noticed(tmp_path, caplog, is_trainable):
    adapter = saved(tmp_path, named("org/toy"))
    with caplog.at_level(logging.WARNING):
        notes = adapt(named("org/toy", seed=1), [adapter], is_trainable=is_trainable).notes
    assert any("was trained beside other weights (org/toy) than those it is put on" in note for note in notes)
    assert "they differ in " in caplog.text


def test_the_same_weights_under_another_name_are_no_other_model(tmp_path):
    adapter = saved(tmp_path, named("org/toy"))
    assert not any("was trained" in note for note in adapt(named("elsewhere"), [adapter]).notes)


def test_the_random_head_of_a_reward_model_is_no_part_of_its_base():
    """Every time that an adapter is put on its base, the head that it will bring is drawn anew before."""

    def reward_model(seed):
        model = named("a")
        torch.manual_seed(seed)
        return build_reward_model(model, SimpleNamespace(pad_token_id=417))

    first, second = (BaseRecord.of(reward_model(seed), "a", 420) for seed in (1, 2))
    assert first == second
    older = replace(first, samples={**first.samples, "score.weight": (1.0, 2.0)})
    newer = replace(second, samples={**second.samples, "score.weight": (2.0, 1.0)})
    assert older.find_difference(newer) is None


def test_without_a_record_the_names_decide(tmp_path):
    adapter = saved(tmp_path, named("org/toy"))
    (tmp_path / RECORD_FILE).unlink()
    notes = adapt(named("org/other"), [adapter], is_trainable=False).notes
    assert f"the adapter {adapter} was trained on org/toy, and is put on org/other" in notes


def test_an_adapter_on_a_merged_one_wants_the_merge_again(tmp_path, caplog):
    first = saved(tmp_path / "first", named("a"))
    second = saved(tmp_path / "second", named("a"), [first], create_new_adapter=True)
    assert BaseRecord.load(second).merged == (first,)
    with caplog.at_level(logging.WARNING):
        adapt(named("a"), [first, second], is_trainable=True)
    assert not caplog.text
    with caplog.at_level(logging.WARNING):
        adapt(named("a"), [second], is_trainable=False)
    assert "was trained beside other weights" in caplog.text
