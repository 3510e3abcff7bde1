import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.tiny.models import tiny_model
from tests.tiny.training import tiny_trainer, uneven_rows, weights
from tunesmith.data.batches import Example
from tunesmith.evaluation.perplexity import measure_loss


def test_one_sgd_step_follows_the_gradient_of_the_mean_over_tokens(tmp_path):
    rows = uneven_rows(4)
    model, reference = tiny_model("llama"), tiny_model("llama").train()
    tiny_trainer(tmp_path, rows, model=model, per_device_train_batch_size=4, learning_rate=0.5).train()
    total, items = 0.0, 0
    for row in rows:
        ids = torch.from_numpy(row["input_ids"]).long()[None]
        start, end = row["trained_spans"]
        logits = reference(input_ids=ids, use_cache=False).logits[0]
        total = total + torch.nn.functional.cross_entropy(
            logits[start - 1 : end - 1], ids[0, start:end], reduction="sum"
        )
        items += int(end - start)
    (total / items).backward()
    for name, parameter in reference.named_parameters():
        expected = parameter.detach() - 0.5 * parameter.grad
        torch.testing.assert_close(weights(model)[name], expected, rtol=1e-4, atol=1e-6)


def test_bookkeeping_does_not_reach_the_model(tmp_path):
    trainer = tiny_trainer(tmp_path, uneven_rows(2))
    batch = next(iter(trainer.get_train_dataloader()))
    assert "row_ids" in batch
    assert "row_ids" not in trainer._prepare_inputs(batch)


def test_rows_of_one_token_are_a_step_of_nothing(tmp_path):
    rows = [Example(input_ids=uneven_rows(1)[0]["input_ids"][:1], trained_spans=torch.tensor([0, 1]).numpy(), row_id=0)]
    model = tiny_model("llama")
    before = weights(model)
    trainer = tiny_trainer(tmp_path, rows, model=model)
    trainer.train()
    assert all(torch.equal(weights(model)[name], before[name]) for name in before)
    assert [line["loss"] for line in trainer.state.log_history if "loss" in line] == [0.0]


def test_evaluation_does_not_depend_on_the_batch_size(tmp_path):
    rows = uneven_rows(11, seed=4)
    found = []
    for size in (1, 3, 11):
        trainer = tiny_trainer(tmp_path, uneven_rows(2), evals=rows, per_device_eval_batch_size=size)
        found.append(trainer.evaluate()["eval_loss"])
    assert found[1:] == pytest.approx(found[:1] * 2, rel=1e-6)


def test_evaluation_agrees_with_measuring_directly(tmp_path):
    rows = uneven_rows(5, seed=4)
    trainer = tiny_trainer(tmp_path, uneven_rows(2), evals={"a": rows[:2], "b": rows[2:]})
    metrics = trainer.evaluate()
    for name, part in (("a", rows[:2]), ("b", rows[2:])):
        measured = measure_loss(
            trainer.model, trainer.get_eval_dataloader(part), trainer.objective, trainer._prepare_inputs
        )
        assert metrics[f"eval_{name}_loss"] == measured.loss
        assert metrics[f"eval_{name}_perplexity"] == measured.perplexity


def test_training_resumes_in_training_mode_after_an_evaluation(tmp_path):
    trainer = tiny_trainer(tmp_path, uneven_rows(4), evals=uneven_rows(2), eval_strategy="steps", eval_steps=1)
    modes = []
    right = trainer.compute_loss

    def compute_loss(model, inputs, return_outputs=False, num_items_in_batch=None):
        modes.append(model.training)
        return right(model, inputs, return_outputs, num_items_in_batch)

    trainer.compute_loss = compute_loss
    trainer.train()
    assert modes == [True, True]
    assert trainer.model.config.use_cache is False


def test_weights_are_saved_without_anything_to_unpickle(tmp_path):
    trainer = tiny_trainer(tmp_path, uneven_rows(2))
    trainer.save_model()
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "generation_config.json", "model.safetensors"}


def test_every_module_is_in_training_mode_from_the_first_step(tmp_path):
    """peft's wrapper says it trains while the model inside, as loaded, does not: dropout would be off."""
    model = get_peft_model(tiny_model("llama"), LoraConfig(r=2, lora_dropout=0.3, target_modules=["q_proj"]))
    assert model.training
    assert not model.get_base_model().training
    trainer = tiny_trainer(
        tmp_path, uneven_rows(6), model=model, evals=uneven_rows(2), eval_strategy="steps", eval_steps=2
    )
    seen = []

    class Watch(type(trainer.objective)):
        def compute(self, model, batch):
            seen.append({module.training for module in model.modules()})
            return super().compute(model, batch)

    trainer.objective = Watch(trainer.objective.head, chunk_tokens=8)
    trainer.train()
    assert seen == [{True}, {True}, {False}, {True}, {False}]  # evaluated after step 2 and after the last
