import pytest

from tunesmith.config import load_config

MEASURED = {"val_size": 0.1, "eval_strategy": "steps", "eval_steps": 100}
ANSWERED = {"val_size": 0.1, "do_train": True, "do_predict": True, "predict_with_generate": True}


def test_a_plain_run_needs_no_notes(load):
    assert load().notes() == ()


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        (
            {"packing": True, "max_samples": 10},
            "`max_samples: 10` caps the rows of each data set first; then they are packed.",
        ),
        (
            {"max_steps": 5, "num_train_epochs": 2},
            "`max_steps: 5` decides the length; `num_train_epochs` is not used.",
        ),
        (
            {"val_size": 2},
            "`val_size: 2` holds rows back, and nothing measures them; set `eval_strategy` or `do_eval`.",
        ),
        (
            {"ignore_pad_token_for_loss": False, "padding_free": False},
            (
                "`ignore_pad_token_for_loss: false` learns padding, so the losses, that of the evaluation too, depend "
                "on the batch size."
            ),
        ),
        (
            {"logging_dir": "logs"},
            (
                "`logging_dir: logs` is not used: it is the folder of TensorBoard's files, and `report_to` does not "
                "name tensorboard."
            ),
        ),
        (
            {"streaming": True, "max_steps": 5, "dataloader_persistent_workers": False},
            (
                "`dataloader_persistent_workers: false` is not used: a stream is one epoch to its workers (`streaming: "
                "true`)."
            ),
        ),
        (
            {"run_name": "x", "project": "y", "report_to": "none"},
            "`run_name: x`, `project: y` are not used: `report_to` names no tracker.",
        ),
        (
            {"project": "y", "report_to": "tensorboard"},
            (
                "`project: y` is not used: of the trackers, only trackio takes its project from here, and `report_to` "
                "does not name it."
            ),
        ),
        (
            {"save_steps": 500, "save_strategy": "epoch"},
            "`save_steps: 500` is not used: checkpoints are written after every epoch (`save_strategy: epoch`).",
        ),
        (
            {"save_steps": 5, "save_strategy": "no"},
            "`save_steps: 5` is not used: no checkpoints are written (`save_strategy: no`).",
        ),
        (
            {"save_only_model": True, "save_total_limit": 2, "save_strategy": "no"},
            (
                "`save_total_limit: 2`, `save_only_model: true` are not used: no checkpoints are written "
                "(`save_strategy: no`)."
            ),
        ),
        (
            {"adam_beta1": 0.5, "adam_epsilon": 1e-6, "optim": "sgd"},
            "`adam_beta1: 0.5`, `adam_epsilon: 1e-06` are not used: `optim: sgd` has no such parameters.",
        ),
        (
            {"quantization_bit": 8, "quantization_type": "nf4", "double_quantization": True},
            (
                "`double_quantization: true`, `quantization_type: nf4` are not used: only the 4 bits of bitsandbytes "
                "have such a choice."
            ),
        ),
        ({"init_special_tokens": "mean_init"}, "`init_special_tokens: mean_init` is not used: no tokens are added."),
        (
            {"optim": "schedule_free_adamw"},
            (
                "`optim: schedule_free_adamw` does without a schedule, and `lr_scheduler_type: linear` lowers its "
                "learning rate all the same; `lr_scheduler_type: constant` is what it is made for."
            ),
        ),
        (
            {"warmup_steps": 3, "lr_scheduler_type": "constant"},
            (
                "`warmup_steps: 3` is not used: `lr_scheduler_type: constant` has no warm-up; `constant_with_warmup` "
                "has one."
            ),
        ),
        (
            MEASURED | {"warmup_ratio": 0.1, "lr_scheduler_type": "greedy"},
            "`warmup_ratio: 0.1` is not used: `lr_scheduler_type: greedy` has no warm-up.",
        ),
        (
            {"stage": "pt", "template": "qwen", "enable_thinking": False, "turn_order_policy": "skip"},
            (
                "`template: qwen`, `enable_thinking: false`, `turn_order_policy: skip` are not used: plain text "
                "(`stage: pt`) is learnt as it is."
            ),
        ),
        (
            {"metric_for_best_model": "eval_loss", "greater_is_better": False},
            (
                "`metric_for_best_model: eval_loss`, `greater_is_better: false` are not used: nothing in this run goes "
                "by the best evaluation."
            ),
        ),
        (
            MEASURED | {"metric_for_best_model": "eval_loss"},
            "`metric_for_best_model: eval_loss` is not used: nothing in this run goes by the best evaluation.",
        ),
        (
            {"eval_dataset": "identity", "per_device_eval_batch_size": 4},
            (
                "`eval_dataset: identity`, `per_device_eval_batch_size: 4` are not used: nothing is measured "
                "(`eval_strategy` is no, and neither `do_eval` nor `do_predict` is set)."
            ),
        ),
        (
            ANSWERED | {"compute_accuracy": False, "do_sample": False, "top_p": 0.5},
            "`top_p: 0.5` is not used: nothing is drawn at random.",
        ),
        (
            ANSWERED | {"length_penalty": 2.0},
            "`length_penalty: 2` is not used: there is no beam search (`num_beams` is 1).",
        ),
        (ANSWERED | {"max_length": 99}, "`max_length: 99` is not used: `max_new_tokens` limits the answers."),
        (
            {"temperature": 0.3, "max_new_tokens": 64, "do_sample": False},
            "`do_sample: false`, `temperature: 0.3`, `max_new_tokens: 64` are not used: this run generates no answers.",
        ),
        (
            {"temperature": 0.3, "max_new_tokens": 64, "sample_steps": 5},
            "`temperature: 0.3` is not used: samples during training take the likeliest token each time.",
        ),
        ({"infer_dtype": "float32"}, "`infer_dtype: float32` is not used: it is for chat and export."),
        (
            {"export_dir": "merged", "export_size": 2},
            "`export_dir: merged`, `export_size: 2` are not used: only `tunesmith export` reads such settings.",
        ),
        (
            {"quantization_method": "bnb", "double_quantization": False},
            (
                "`quantization_method: bnb`, `double_quantization: false` are not used: weights are compressed only "
                "with `quantization_bit`."
            ),
        ),
        (
            {"adapter_name_or_path": "org/a", "lora_rank": 16, "lora_target": "all"},
            (
                "`lora_rank: 16`, `lora_target: all` are not used: training goes on with org/a, which has a shape of "
                "its own."
            ),
        ),
        ({"model_revision": "abc"}, "`model_revision: abc` is not used: the model is on this disk."),
    ],
)
def test_notes_tell_what_a_run_has_no_use_for(load, changes, note):
    assert load(**changes).notes() == (note,)


@pytest.mark.parametrize(
    "changes",
    [
        {"max_steps": 5},
        {"logging_dir": "logs", "report_to": "tensorboard"},
        {"save_steps": 5, "save_only_model": True, "save_total_limit": 2},
        {"adam_beta2": 0.95},
        {"warmup_steps": 3, "lr_scheduler_type": "constant_with_warmup"},
        {"warmup_steps": 0, "lr_scheduler_type": "constant"},
        {"template": "auto", "stage": "pt"},
        {"template": "qwen"},
        MEASURED | {"early_stopping_steps": 2, "greater_is_better": False, "compute_accuracy": True},
        MEASURED | {"metric_for_best_model": "eval_loss", "save_total_limit": 1},
        {"eval_dataset": "identity", "sample_steps": 5, "per_device_eval_batch_size": 2, "max_new_tokens": 9},
        ANSWERED | {"temperature": 0.3, "skip_special_tokens": False, "per_device_eval_batch_size": 2},
        ANSWERED | {"max_length": 99, "max_new_tokens": 0, "length_penalty": 2.0, "num_beams": 2},
        {"infer_dtype": "auto"},
        {"adapter_name_or_path": "org/a", "lora_rank": 16, "create_new_adapter": True},
        {"model_name_or_path": "org/name", "model_revision": "abc"},
        {"save_only_model": False, "save_total_limit": None, "save_strategy": "no"},
    ],
)
def test_what_is_used_is_not_noted(load, changes):
    assert load(**changes).notes() == ()


def test_other_commands_use_their_own_settings(load):
    answering = {"dataset": None, "output_dir": None, "temperature": 0.3, "infer_dtype": "float32", "template": "qwen"}
    assert load(**answering).notes() == ()
    assert load(**answering, export_dir="merged", model_revision="abc").notes() == ()


def test_a_saved_run_says_what_the_run_said(load, folder):
    config = load(save_strategy="no", save_steps=7, neat_packing=True, max_samples=3)
    (folder / "saved.yaml").write_text(config.to_yaml(), encoding="utf-8")
    assert load_config("saved.yaml", environ={}, purpose="read").notes() == config.notes()
    assert len(config.notes()) == 2
