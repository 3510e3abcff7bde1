"""Runs of adapters that need more than steps of an optimizer: first weights from data, moving ranks, learnt prompts."""

import json
import shutil

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.tiny.runs import tiny_run, write_place
from tunesmith.config import load_config
from tunesmith.errors import ConfigError, ModelError
from tunesmith.models import load_model, load_tokenizer
from tunesmith.training.run import run_training

IDS = torch.tensor([[5, 9, 200, 31, 4, 77, 18]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_place(tmp_path_factory.mktemp("runs"), num_rows=12)


def run(folder, out, **settings):
    chosen = {"output_dir": str(out), "max_steps": 3, "lora_rank": None, **settings}
    return run_training(tiny_run(folder, **chosen))


def logits(model):
    with torch.no_grad():
        return model.eval()(input_ids=IDS, use_cache=False).logits


def plain(folder, out):
    """Load a result the way any program would."""
    return PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder / "model"), out)


@pytest.mark.parametrize("begin", ["pissa", "olora", "eva", "lora_ga"])
def test_a_run_that_is_stopped_and_resumed_ends_where_an_uninterrupted_one_does(folder, tmp_path, begin):
    settings = {"init_lora_weights": begin, "lora_rank": 4, "save_steps": 2}
    whole = run(folder, tmp_path / "whole", **settings)
    assert whole.metrics["train_loss"] > 0
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    resumed = run(
        folder, tmp_path / "parts", **settings, resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-2")
    )
    torch.testing.assert_close(logits(resumed.trainer.model), logits(whole.trainer.model), atol=0, rtol=0)
    saved = json.loads((tmp_path / "parts" / "adapter_config.json").read_text())
    assert (saved["init_lora_weights"], saved["r"]) == (True, 4 if begin == "eva" else 8)
    torch.testing.assert_close(
        logits(plain(folder, tmp_path / "parts")), logits(whole.trainer.model), atol=1e-4, rtol=1e-4
    )


def test_the_best_weights_of_an_adapter_that_moved_the_base_are_fetched_whole(folder, tmp_path):
    result = run(
        folder,
        tmp_path,
        pissa_init=True,
        lora_rank=4,
        save_steps=1,
        eval_strategy="steps",
        eval_steps=1,
        val_size=4,
        load_best_model_at_end=True,
        learning_rate=0.3,  # so large that the first step is the best
    )
    best = result.trainer.state.best_model_checkpoint
    torch.testing.assert_close(logits(plain(folder, best)), logits(result.trainer.model), atol=1e-4, rtol=1e-4)


def test_loftq_makes_up_for_what_four_bits_lost_and_merges_into_exact_weights(folder, tmp_path):
    pytest.importorskip("bitsandbytes")
    settings = {"quantization_bit": 4, "lora_rank": 16, "learning_rate": 0.0, "max_steps": 1}
    exact = logits(AutoModelForCausalLM.from_pretrained(folder / "model"))
    plain_model = run(folder, tmp_path / "plain", **settings).trainer.model
    lost = (logits(plain_model) - exact).abs().mean()
    result = run(folder, tmp_path / "loftq", **settings, init_lora_weights="loftq")
    assert (logits(result.trainer.model) - exact).abs().mean() < 0.6 * lost
    # Untrained, it is no difference to the exact weights.
    torch.testing.assert_close(logits(plain(folder, tmp_path / "loftq")), exact, atol=1e-4, rtol=1e-4)


def test_a_loftq_run_is_resumed_where_it_was(folder, tmp_path):
    pytest.importorskip("bitsandbytes")
    settings = {"quantization_bit": 4, "lora_rank": 4, "init_lora_weights": "loftq", "save_steps": 2}
    whole = run(folder, tmp_path, **settings)
    resumed = run(folder, tmp_path, **settings, resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    torch.testing.assert_close(logits(resumed.trainer.model), logits(whole.trainer.model), atol=0, rtol=0)


def test_eva_begins_in_the_inputs_of_compressed_layers_too(folder, tmp_path):
    pytest.importorskip("bitsandbytes")
    settings = {"quantization_bit": 4, "lora_rank": 4, "learning_rate": 0.0, "max_steps": 1}
    run(folder, tmp_path / "plain", **settings)
    run(folder, tmp_path / "eva", **settings, init_lora_weights="eva")
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    by_chance, found = (load_file(tmp_path / out / "adapter_model.safetensors")[name] for out in ("plain", "eva"))
    assert not torch.allclose(by_chance, found)
    torch.testing.assert_close(found @ found.t(), torch.eye(4), atol=1e-4, rtol=0)  # directions at right angles


def test_eva_needs_as_many_tokens_as_directions(folder, tmp_path):
    with pytest.raises(ModelError, match=r"eva needs batches with at least 32 learnt tokens"):
        run(folder, tmp_path, init_lora_weights="eva", lora_rank=32, per_device_train_batch_size=1, cutoff_len=24)


def test_adalora_takes_ranks_away_and_its_result_loads_elsewhere(folder, tmp_path):
    options = {"init_r": 4, "target_r": 2, "deltaT": 1}
    result = run(folder, tmp_path, finetuning_type="adalora", adapter_options=options, max_steps=4)
    pattern = result.trainer.model.peft_config["default"].rank_pattern
    kept = sum(sum(ranks) for ranks in pattern.values())
    assert kept == 14 * 2  # of 14 adapters with 4 ranks each
    torch.testing.assert_close(logits(plain(folder, tmp_path)), logits(result.trainer.model), atol=1e-4, rtol=1e-4)


def test_adaloras_factors_are_pulled_towards_orthogonal_ones(folder, tmp_path):
    def distance(weight: float) -> float:
        out = tmp_path / str(weight)
        options = {"init_r": 4, "target_r": 3, "orth_reg_weight": weight}
        run(folder, out, finetuning_type="adalora", adapter_options=options, learning_rate=1e-2)
        factors = [value for name, value in load_file(out / "adapter_model.safetensors").items() if "lora_A" in name]
        return sum(float((factor @ factor.t() - torch.eye(len(factor))).norm()) for factor in factors)

    assert distance(0.9) < distance(1e-9)


def test_adalora_without_a_rank_to_take_away_is_refused(folder, tmp_path):
    with pytest.raises(ConfigError, match="target_r is 8 and init_r 8, so there is no rank to take away"):
        run(folder, tmp_path, finetuning_type="adalora", adapter_options={"target_r": 8, "init_r": 8})


def test_adalora_in_too_short_a_run_is_refused(folder, tmp_path):
    with pytest.raises(ConfigError, match="with tinit 2 and tfinal 1 a run of 3 steps has none left"):
        run(folder, tmp_path, finetuning_type="adalora", adapter_options={"tinit": 2, "tfinal": 1})


@pytest.mark.parametrize("kind", ["prompt_tuning", "prefix_tuning", "p_tuning"])
def test_learnt_prompts_train_and_answer(folder, tmp_path, kind):
    length = {"num_train_epochs": 4, "max_steps": None, "logging_steps": 1, "learning_rate": 0.05}
    answers = {"predict_with_generate": True, "val_size": 2, "eval_strategy": "epoch", "max_new_tokens": 4}
    options = {"num_virtual_tokens": 4}
    result = run(folder, tmp_path, finetuning_type=kind, adapter_options=options, **length, **answers)
    losses = [line["loss"] for line in result.trainer.state.log_history if "loss" in line]
    assert losses[-1] < losses[0]
    torch.testing.assert_close(logits(plain(folder, tmp_path)), logits(result.trainer.model), atol=1e-4, rtol=1e-4)
    config = load_config({"model_name_or_path": str(tmp_path), "use_cpu": True}, purpose="generate", environ={})
    loaded = load_model(config, load_tokenizer(config.model), is_trainable=False).model
    assert isinstance(loaded, PeftModel)
    torch.testing.assert_close(logits(loaded), logits(result.trainer.model), atol=1e-4, rtol=1e-4)


def test_the_loss_of_a_learnt_prompt_is_that_of_the_text_behind_it(folder, tmp_path):
    settings = {"finetuning_type": "prompt_tuning", "learning_rate": 0.0, "max_steps": 1, "logging_steps": 1}
    result = run(folder, tmp_path, **settings, per_device_train_batch_size=12)
    model, total, items = result.trainer.model.eval(), 0.0, 0
    for row in result.trainer.train_dataset:
        spans = row["trained_spans"].reshape(-1, 2)
        ids = torch.tensor(row["input_ids"][None].astype("int64"))
        with torch.no_grad():
            own = model(input_ids=ids).logits[0, -ids.shape[1] :].log_softmax(-1)
        positions = [p for start, end in spans for p in range(int(start), int(end)) if p]
        total += sum(-own[p - 1, ids[0, p]].item() for p in positions)
        items += len(positions)
    assert result.metrics["train_loss"] == pytest.approx(total / items, rel=1e-4)


def test_the_end_of_a_run_says_what_a_server_has_to_be_told(folder, tmp_path, caplog):
    caplog.set_level("INFO")
    run(folder, tmp_path, pissa_init=True, lora_rank=12, lora_target="q_proj", max_steps=1)
    assert caplog.messages[-1] == "To serve this adapter with vLLM: start it with --max-lora-rank 32."
