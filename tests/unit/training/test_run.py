import json
import logging
import math

import pytest
import torch
from transformers import TrainerCallback

from tests.tiny.runs import tiny_run, write_dataset, write_model, write_place
from tests.tiny.training import weights
from tunesmith.config import load_config
from tunesmith.errors import CheckpointError, ConfigError, DataError, TrainingError
from tunesmith.training.resume import find_run_id
from tunesmith.training.run import run_training


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return write_place(tmp_path_factory.mktemp("run"))


def test_a_run_leaves_everything_in_its_folder(place, tmp_path):
    out = tmp_path / "out"
    result = run_training(tiny_run(place, output_dir=str(out), plot_loss=True, num_train_epochs=2, save_steps=5))
    names = {path.name for path in out.iterdir()}
    assert names >= {
        "adapter_config.json",
        "adapter_model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "trainer_log.jsonl",
        "training_loss.png",
        "train_results.json",
        "all_results.json",
        "trainer_state.json",
        "data_report.json",
        "run.yaml",
        "plan.txt",
        "checkpoint-5",
    }
    figures = json.loads((out / "train_results.json").read_text())
    assert figures["train_loss"] == pytest.approx(result.metrics["train_loss"])
    assert figures["total_tokens"] > 0
    assert {"tokens_per_second", "peak_memory_gb", "data_wait_share"} <= figures.keys()
    losses = [json.loads(line)["loss"] for line in (out / "trainer_log.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0]
    assert not result.is_interrupted


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_plan_says_what_will_happen(place, tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="tunesmith"):
        run_training(tiny_run(place, output_dir=str(tmp_path), max_steps=1, gradient_accumulation_steps=2))
    plan = (tmp_path / "plan.txt").read_text(encoding="utf-8")
    for words in (
        "stage sft, lora rank 4 on all",
        "adapters on mlp 2,304 2,304 float32",
        "`max_steps: 1` decides the length",
        "frozen fp32, trained fp32",
        "rows end to end, no padding",
        "1, each of 8 rows (4 x 2 accumulated), 0.33 epochs",
        "toy",
        str(tmp_path),
    ):
        assert words in " ".join(plan.split())
    assert plan.strip() in caplog.text
    assert len(plan.splitlines()) < 30


def test_the_saved_configuration_runs_again_to_the_same_weights(place, tmp_path):
    first = run_training(tiny_run(place, output_dir=str(tmp_path / "a"), max_steps=2, lora_dropout=0.1))
    again = load_config(tmp_path / "a" / "run.yaml", {"output_dir": str(tmp_path / "b")})
    second = run_training(again)
    expected, found = weights(first.trainer.model), weights(second.trainer.model)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    "settings",
    [
        {"finetuning_type": "full"},
        {"finetuning_type": "freeze", "freeze_trainable_layers": 1},
        {"padding_free": False, "gradient_checkpointing": True},
        {"packing": True, "per_device_train_batch_size": 1},
        {"stage": "pt", "dataset": "texts", "cutoff_len": 64},
        {"train_sampling_strategy": "group_by_length", "optim": "adafactor", "lr_scheduler_type": "cosine"},
        {"label_smoothing_factor": 0.1, "z_loss": 1e-4, "neftune_noise_alpha": 5, "weight_decay": 0.1},
        {"bf16": True},
        {"bf16": True, "finetuning_type": "freeze", "freeze_trainable_layers": 1},
        {"bf16": True, "additional_target": "embed_tokens"},
        {"pure_bf16": True, "bf16": None, "finetuning_type": "full"},
    ],
    ids=",".join,
)
@pytest.mark.no_cover  # other tests meet the same lines
def test_kinds_of_runs_learn(place, tmp_path, settings):
    lora = {} if settings.get("finetuning_type", "lora") == "lora" else {"lora_rank": None}
    chosen = {"num_train_epochs": 3, "logging_steps": 1, "save_strategy": "no", **settings, **lora}
    run_training(tiny_run(place, output_dir=str(tmp_path), **chosen))
    losses = [line["loss"] for line in lines_of(tmp_path / "trainer_log.jsonl")]
    epoch = len(losses) // 3
    assert sum(losses[-epoch:]) < sum(losses[:epoch])  # batches differ more than three epochs teach
    assert (tmp_path / "chat_template.jinja").is_file()


def test_evaluation_is_exact_to_the_token(place, tmp_path):
    config = tiny_run(
        place,
        output_dir=str(tmp_path),
        val_size=7,
        do_train=False,
        do_eval=True,
        compute_accuracy=True,
        per_device_eval_batch_size=3,
    )
    result = run_training(config)
    rows = result.trainer.eval_dataset
    total, items = 0.0, 0
    for index in range(len(rows)):
        ids, spans = torch.tensor(rows[index]["input_ids"])[None].long(), rows[index]["trained_spans"]
        with torch.no_grad():
            logits = result.trainer.model(input_ids=ids, use_cache=False).logits[0]
        for start, end in zip(spans[::2], spans[1::2], strict=True):
            positions = range(max(1, start), end)
            total += sum(-logits[p - 1].log_softmax(-1)[ids[0, p]].item() for p in positions)
            items += len(positions)
    assert result.metrics["eval_loss"] == pytest.approx(total / items, rel=1e-5)
    assert result.metrics["eval_perplexity"] == pytest.approx(math.exp(total / items), rel=1e-4)
    assert 0 <= result.metrics["eval_accuracy"] <= 1
    assert json.loads((tmp_path / "eval_results.json").read_text())["eval_loss"] == result.metrics["eval_loss"]
    assert not (tmp_path / "adapter_model.safetensors").exists()


def test_predictions_are_written_and_scored(place, tmp_path):
    config = tiny_run(
        place,
        output_dir=str(tmp_path),
        val_size=4,
        do_train=True,
        do_predict=True,
        predict_with_generate=True,
        max_new_tokens=6,
        max_steps=2,
        eval_strategy="steps",
        eval_steps=2,
    )
    result = run_training(config)
    lines = lines_of(tmp_path / "generated_predictions.jsonl")
    assert len(lines) == 4
    assert set(lines[0]) == {"prompt", "predict", "label"}
    assert json.loads((tmp_path / "predict_results.json").read_text()).keys() >= {"predict_bleu-4", "predict_rouge-l"}
    assert "eval_rouge-l" in lines_of(tmp_path / "trainer_log.jsonl")[-1]
    assert result.metrics["predict_num_predictions"] == 4


def test_resuming_with_another_batch_size_is_refused(place, tmp_path):
    run_training(tiny_run(place, output_dir=str(tmp_path), save_steps=3))
    config = tiny_run(place, output_dir=str(tmp_path), resume_from_checkpoint=True, per_device_train_batch_size=2)
    with pytest.raises(CheckpointError, match="per_device_train_batch_size was 4 and is 2"):
        run_training(config)


def test_a_run_that_replaced_another_goes_on_from_its_own_checkpoint(place, tmp_path, caplog):
    """The older run went further, and its last checkpoint still lies there."""
    run_training(tiny_run(place, output_dir=str(tmp_path), save_steps=6))
    newer = {"learning_rate": 3e-3, "save_steps": 2}
    run_training(tiny_run(place, output_dir=str(tmp_path), max_steps=4, overwrite_output_dir=True, **newer))
    steps = sorted(path.name for path in tmp_path.glob("checkpoint-*"))
    assert steps == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
    with caplog.at_level(logging.INFO, logger="tunesmith"):
        result = run_training(tiny_run(place, output_dir=str(tmp_path), resume_from_checkpoint=True, **newer))
    assert f"Resuming from {tmp_path / 'checkpoint-4'}." in caplog.text
    assert f"{tmp_path / 'checkpoint-6'} belongs to another run" in caplog.text
    assert result.state.global_step == 6


def test_measuring_a_finished_run_does_not_take_over_its_folder(place, tmp_path, caplog):
    caplog.set_level("INFO", logger="tunesmith")
    run_training(tiny_run(place, output_dir=str(tmp_path), max_steps=1))
    before = find_run_id(tmp_path)
    run_training(tiny_run(place, output_dir=str(tmp_path), do_train=False, do_eval=True, val_size=2))
    assert find_run_id(tmp_path) == before
    assert caplog.messages[-2].startswith("Evaluation: loss ")
    assert caplog.messages[-1] == f"Results are in {tmp_path}."


def test_rows_that_fill_no_batch_are_in_plan_and_report(place, tmp_path):
    config = tiny_run(place, output_dir=str(tmp_path), dataloader_drop_last=True, per_device_train_batch_size=5)
    run_training(config)
    assert "leaves out 4 rows of each epoch" in (tmp_path / "plan.txt").read_text()
    assert json.loads((tmp_path / "data_report.json").read_text())["left_out_per_epoch"] == 4


def test_fewer_rows_than_a_batch_are_refused_before_the_model_is_loaded(place, tmp_path, monkeypatch):
    monkeypatch.setattr("tunesmith.training.run.load_model", None)
    config = tiny_run(place, output_dir=str(tmp_path), dataloader_drop_last=True, per_device_train_batch_size=50)
    with pytest.raises(DataError, match="dataloader_drop_last leaves out every row"):
        run_training(config)


def test_models_that_carry_a_state_get_rows_of_their_own(tmp_path):
    """Rows end to end would run into each other in the layers that attention does not rule."""
    write_model(tmp_path / "model", "lfm2", layer_types=["conv", "full_attention"])
    whole = {"finetuning_type": "full", "lora_rank": None, "max_steps": 1}
    write_dataset(tmp_path / "data")
    run_training(tiny_run(tmp_path, output_dir=str(tmp_path / "a"), **whole))
    assert "rows side by side, padded" in (tmp_path / "a" / "plan.txt").read_text()
    with pytest.raises(ConfigError, match=r"padding_free is true.*lfm2 has conv layers.*Set padding_free: false"):
        run_training(tiny_run(tmp_path, output_dir=str(tmp_path / "b"), padding_free=True))
    run_training(tiny_run(tmp_path, output_dir=str(tmp_path / "c"), stage="pt", dataset="texts", **whole))
    assert "packed texts are not kept apart: lfm2 has conv layers" in (tmp_path / "c" / "plan.txt").read_text()


def test_samples_are_printed_with_a_metric(place, tmp_path, caplog):
    common = {"max_steps": 4, "sample_steps": 2, "max_new_tokens": 5}
    with caplog.at_level(logging.INFO, logger="tunesmith"):
        run_training(tiny_run(place, output_dir=str(tmp_path / "a"), val_size=4, **common))
        run_training(tiny_run(place, output_dir=str(tmp_path / "b"), sample_prompts=["Who are you?"], **common))
    shown = [message for message in caplog.messages if message.startswith("samples after step")]
    assert len(shown) == 4
    assert "samples after step 2 (sample_rouge-l" in shown[0]
    assert "sample_distinct_words" in shown[3]
    assert "> Who are you?" in shown[3]


def test_early_stopping_and_the_best_model(place, tmp_path):
    config = tiny_run(
        place,
        output_dir=str(tmp_path),
        val_size=6,
        num_train_epochs=20,
        learning_rate=0.3,
        eval_strategy="steps",
        eval_steps=2,
        save_steps=2,
        save_total_limit=1,
        load_best_model_at_end=True,
        early_stopping_steps=2,
    )
    result = run_training(config)
    state = result.state
    assert state.global_step < state.max_steps
    log = lines_of(tmp_path / "trainer_log.jsonl")
    evaluated = {line["current_steps"]: line["eval_loss"] for line in log if "eval_loss" in line}
    best = min(evaluated, key=evaluated.get)
    assert state.best_model_checkpoint == str(tmp_path / f"checkpoint-{best}")
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == sorted(
        {f"checkpoint-{best}", f"checkpoint-{state.global_step}"}
    )
    assert result.trainer.evaluate()["eval_loss"] == pytest.approx(evaluated[best], rel=1e-6)


def test_tensorboard_gets_the_numbers(place, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = tiny_run(
        place,
        output_dir=str(tmp_path / "out"),
        report_to="tensorboard",
        logging_dir=str(tmp_path / "board"),
        logging_steps=1,
        max_steps=3,
    )
    run_training(config)
    events = EventAccumulator(str(tmp_path / "board")).Reload()
    logged = [line["loss"] for line in lines_of(tmp_path / "out" / "trainer_log.jsonl")]
    assert [event.value for event in events.Scalars("train/loss")] == pytest.approx(logged)
    assert "train/tokens_per_second" in events.Tags()["scalars"]


def test_a_failing_run_says_which_rows_and_draws_what_it_has(place, tmp_path):
    name = f"{__name__}:PoisonAtThree"
    config = tiny_run(place, output_dir=str(tmp_path), callbacks=name, logging_steps=1, plot_loss=True)
    with pytest.raises(TrainingError, match=r"(?s)The loss of step 3 is nan.*data set toy, file .*toy.json, row \d+"):
        run_training(config)
    assert (tmp_path / "training_loss.png").is_file()


class PoisonAtThree(TrainerCallback):
    """Spoils a weight before the third step."""

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        if state.global_step == 2:
            with torch.no_grad():
                next(p for p in model.parameters() if p.requires_grad).fill_(float("nan"))


def test_effective_tokens_are_reported_when_asked_for(place, tmp_path):
    config = tiny_run(
        place, output_dir=str(tmp_path), max_steps=2, include_effective_tokens_per_second=True, save_strategy="no"
    )
    result = run_training(config)
    assert 0 < result.metrics["effective_tokens_per_sec"] < result.metrics["tokens_per_second"]


def test_answers_are_generated_where_trained_and_frozen_weights_differ_in_type(place, tmp_path):
    """Layers in fp32 among layers in bf16 only fit together under autocast, before training as well as after."""
    config = tiny_run(
        place,
        output_dir=str(tmp_path),
        finetuning_type="freeze",
        freeze_trainable_layers=1,
        lora_rank=None,
        bf16=True,
        val_size=2,
        do_predict=True,
        predict_with_generate=True,
        max_new_tokens=3,
    )
    assert run_training(config).metrics["predict_num_predictions"] == 2


def test_micro_batches_by_tokens_train_on_every_row(place, tmp_path):
    config = tiny_run(place, output_dir=str(tmp_path), tokens_per_device_batch=160, num_train_epochs=2)
    result = run_training(config)
    assert result.state.global_step == result.state.max_steps
    assert result.trainer.meter.real_tokens == 2 * int(result.trainer.train_dataset.lengths.sum())
    assert not result.is_interrupted
