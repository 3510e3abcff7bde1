"""Which reference a run has, and that it stays what it was while the policy moves."""

import shutil

import pytest
import torch

from tests.tiny.models import tiny_model
from tests.tiny.runs import tiny_run, write_model, write_place
from tests.tiny.tokenizers import metaspace_tokenizer
from tunesmith.errors import ModelError
from tunesmith.training.assembly import assemble_trainer
from tunesmith.training.plan import render_plan
from tunesmith.training.run import prepare_parts, run_training


@pytest.fixture
def folder(tmp_path):
    return write_place(tmp_path)


def prepare(folder, **settings):
    parts = prepare_parts(tiny_run(folder, **{"stage": "dpo", "dataset": "pairs", **settings}))
    trainer = assemble_trainer(parts, None).trainer
    return parts, trainer, trainer.prepare_rows([parts.data.train[row] for row in range(4)])


def move(model):
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.05)


def policy_of(parts, batch):
    with torch.no_grad():
        return parts.objective.scorer.score(parts.loaded.model, batch).log_probabilities


@pytest.fixture
def adapter(folder):
    """An adapter that a run has trained."""
    run_training(tiny_run(folder, output_dir=str(folder / "adapter"), max_steps=2))
    return str(folder / "adapter")


KINDS = {
    "fresh": ({}, "the base model (the adapter switched off)"),
    "full": ({"finetuning_type": "full", "lora_rank": None}, "a frozen copy of all weights"),
    "freeze": (
        {"finetuning_type": "freeze", "lora_rank": None, "freeze_trainable_layers": 1},
        "a frozen copy of the trained layers",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_is_the_start_of_training_and_does_not_move(folder, kind):
    settings, described = KINDS[kind]
    parts, _, batch = prepare(folder, **settings)
    reference, model = parts.objective.reference, parts.loaded.model
    assert described in reference.describe()
    assert f"reference: {reference.describe()}" in " ".join(render_plan(parts, None).split())
    before = policy_of(parts, batch)
    torch.testing.assert_close(reference.completion_log_probabilities(model, batch), before, atol=1e-4, rtol=1e-5)
    move(model)
    after = policy_of(parts, batch)
    assert not torch.allclose(after, before)
    torch.testing.assert_close(reference.completion_log_probabilities(model, batch), before, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(policy_of(parts, batch), after)
    assert reference.equals_policy_at_start


def test_a_continued_adapter_is_measured_from_where_it_was_and_not_from_the_base(folder, adapter):
    parts, _, batch = prepare(folder, adapter_name_or_path=adapter)
    reference, model = parts.objective.reference, parts.loaded.model
    assert f"a frozen copy of the adapter {adapter}" in reference.describe()
    before = policy_of(parts, batch)
    with model.disable_adapter():
        base = policy_of(parts, batch)
    assert not torch.allclose(base, before, atol=1e-3)
    move(model)
    torch.testing.assert_close(reference.completion_log_probabilities(model, batch), before)


def test_a_new_adapter_on_a_merged_one_is_measured_from_the_merged_model(folder, adapter):
    parts, _, batch = prepare(folder, adapter_name_or_path=adapter, create_new_adapter=True)
    assert parts.objective.reference.describe() == KINDS["fresh"][1]
    before = policy_of(parts, batch)
    move(parts.loaded.model)
    torch.testing.assert_close(
        parts.objective.reference.completion_log_probabilities(parts.loaded.model, batch), before, atol=1e-5, rtol=1e-5
    )


def test_another_model_can_be_the_reference_with_its_adapters(folder, adapter):
    write_model(folder / "other", seed=3)
    parts, _, batch = prepare(folder, ref_model=str(folder / "other"))
    plain = parts.objective.reference
    size = sum(weight.nbytes for weight in parts.loaded.model.get_base_model().parameters() if not weight.requires_grad)
    assert plain.describe() == f"{folder / 'other'} (a model of its own, {size / 1e9:.2g} GB)"
    assert not plain.equals_policy_at_start
    found = plain.completion_log_probabilities(parts.loaded.model, batch)
    assert not torch.allclose(found, policy_of(parts, batch), atol=1e-2)
    adapted, _, batch = prepare(folder, ref_model=str(folder / "other"), ref_model_adapters=adapter)
    assert f"with {adapter}" in adapted.objective.reference.describe()
    other = adapted.objective.reference.completion_log_probabilities(adapted.loaded.model, batch)
    assert not torch.allclose(found, other, atol=1e-3)


def test_another_model_can_be_compressed_while_the_policy_is_not(folder):
    exact, _, batch = prepare(folder, ref_model=str(folder / "model"))
    coarse, _, _ = prepare(folder, ref_model=str(folder / "model"), ref_model_quantization_bit=4)
    assert "in 4 bits (a model of its own" in coarse.objective.reference.describe()
    assert coarse.loaded.quantization is None
    assert "Linear4bit" in {type(module).__name__ for module in coarse.objective.reference.model.modules()}
    expected, found = (
        parts.objective.reference.completion_log_probabilities(parts.loaded.model, batch) for parts in (exact, coarse)
    )
    assert 1e-5 < (found - expected).abs().max() < 0.05 * expected.abs().max()


def test_the_same_model_named_as_the_reference_gives_the_log_probabilities_of_the_base(folder):
    parts, _, batch = prepare(folder, ref_model=str(folder / "model"))
    found = parts.objective.reference.completion_log_probabilities(parts.loaded.model, batch)
    torch.testing.assert_close(found, policy_of(parts, batch), atol=1e-4, rtol=1e-5)


def test_a_reference_with_another_vocabulary_is_refused(folder):
    shutil.copytree(folder / "model", folder / "other")
    tiny_model("llama", vocab_size=520).save_pretrained(folder / "other")
    metaspace_tokenizer().save_pretrained(folder / "other")
    with pytest.raises(ModelError, match=r"ref_model: .*other has another vocabulary"):
        prepare(folder, ref_model=str(folder / "other"))


def test_a_reference_that_cannot_be_loaded_is_named_by_its_own_setting(folder):
    write_model(folder / "other")
    (folder / "other" / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ModelError, match=r"^(?!.*model_name_or_path)ref_model: .*other") as caught:
        prepare(folder, ref_model=str(folder / "other"))
    assert isinstance(caught.value.__cause__, ModelError)


def test_a_resumed_run_is_measured_from_where_the_whole_run_began(folder):
    def train(name, **settings):
        values = {"stage": "dpo", "dataset": "pairs", "finetuning_type": "full", "lora_rank": None, "max_steps": 4}
        values |= {"learning_rate": 1e-3, "output_dir": str(folder / name), "save_steps": 2}
        return run_training(tiny_run(folder, **{**values, **settings})).trainer.model.state_dict()

    whole = train("whole")
    shutil.copytree(folder / "whole", folder / "parts")
    resumed = train("parts", resume_from_checkpoint=str(folder / "parts" / "checkpoint-2"))
    for name, value in whole.items():
        torch.testing.assert_close(resumed[name], value, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("loss", ["orpo", "simpo", "cpo"])
def test_losses_that_need_none_have_none_and_the_plan_says_so(folder, loss):
    parts, _, _ = prepare(folder, pref_loss=loss)
    assert parts.objective.reference is None
    assert "reference: none" in " ".join(render_plan(parts, None).split())
