import inspect

import pytest

from tests.unit.config.conftest import GPU
from tunesmith.config.evaluating import METRICS
from tunesmith.config.rules.training import SCHEDULE_DETAILS

EVALUATED = {"val_size": 0.1, "eval_strategy": "steps", "eval_steps": 100}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"pure_bf16": True, "bf16": False},
            "pure_bf16: `pure_bf16: true` contradicts `bf16: false`; keep one of them. (see bf16)",
        ),
        (
            {"warmup_ratio": 0.1, "warmup_steps": 10},
            "warmup_ratio: `warmup_ratio: 0.1` and `warmup_steps: 10` both set the warm-up",
        ),
        (
            {"warmup_steps": 1.5},
            "warmup_steps: `warmup_steps` is 1.5; allowed is a whole number of steps, or a share of all",
        ),
        ({"save_steps": 1.5}, "save_steps: `save_steps` is 1.5; allowed is a whole number of steps"),
        ({"max_steps": 0}, "max_steps: `max_steps` is 0; allowed is 1 or more, or -1 to go by `num_train_epochs`."),
        (
            {"val_size": 0.1, "eval_steps": 5},
            "eval_steps: `eval_steps: 5` has no effect with `eval_strategy: no`; set",
        ),
        (
            EVALUATED | {"eval_strategy": "epoch"},
            "eval_steps: `eval_steps: 100` has no effect with `eval_strategy: epoch`",
        ),
        (
            {"early_stopping_steps": 3},
            "early_stopping_steps: `early_stopping_steps: 3` goes by the evaluation during training",
        ),
        (
            {"load_best_model_at_end": True},
            "load_best_model_at_end: `load_best_model_at_end: true` goes by the evaluation",
        ),
        ({"save_strategy": "best"}, "save_strategy: `save_strategy: best` goes by the evaluation during training"),
        (
            {"lr_scheduler_type": "reduce_lr_on_plateau"},
            "lr_scheduler_type: `lr_scheduler_type: reduce_lr_on_plateau` goes by the",
        ),
        ({"lr_scheduler_type": "greedy"}, "lr_scheduler_type: `lr_scheduler_type: greedy` goes by the evaluation"),
        (
            EVALUATED | {"load_best_model_at_end": True, "save_strategy": "epoch"},
            (
                "load_best_model_at_end: `load_best_model_at_end: true` needs each checkpoint measured, but "
                "`eval_strategy: steps` and `save_strategy: epoch` differ; set both to the same. (see eval_strategy, s"
            ),
        ),
        (
            EVALUATED | {"load_best_model_at_end": True, "save_steps": 150},
            (
                "load_best_model_at_end: `load_best_model_at_end: true` needs `save_steps` to be a "
                "multiple of `eval_steps`; they "
                "are 150 and 100. (see save_steps, eval_steps)"
            ),
        ),
        (
            EVALUATED | {"load_best_model_at_end": True, "save_steps": 0.5},
            "load_best_model_at_end: `load_best_model_at_end: true` needs `save_steps` to be a multiple",
        ),
        (
            {"greater_is_better": True},
            "greater_is_better: `greater_is_better: true` with the evaluation loss would keep the worst",
        ),
        (
            EVALUATED | {"load_best_model_at_end": True, "save_steps": 100, "greater_is_better": True},
            "greater_is_better: `greater_is_better: true` with the evaluation loss would keep the worst",
        ),
        (
            {"metric_for_best_model": "eval_loss", "greater_is_better": True},
            "greater_is_better: `greater_is_better: true` with the evaluation loss would keep the worst",
        ),
        (
            EVALUATED | {"metric_for_best_model": "perplexity", "greater_is_better": True},
            "greater_is_better: `greater_is_better: true` with the evaluation perplexity would keep the worst",
        ),
        (
            EVALUATED | {"metric_for_best_model": "eval_perplexty"},
            (
                "metric_for_best_model: `metric_for_best_model` is eval_perplexty, which this run does not measure; "
                "allowed is one of loss, perplexity, with or without `eval_` in front. Did you mean `perplexity`?"
            ),
        ),
        (
            EVALUATED | {"metric_for_best_model": "rouge-1", "compute_accuracy": True},
            (
                "metric_for_best_model: `metric_for_best_model` is rouge-1, which this run does not measure; allowed "
                "is one of loss, perplexity, accuracy, with or without `eval_` in front. Set `predict_with_generate"
            ),
        ),
        (
            {"stage": "pt", "predict_with_generate": True, "val_size": 0.1},
            (
                "predict_with_generate: `predict_with_generate: true` compares generated answers "
                "with given ones, which `stage: pt` "
                "does not have"
            ),
        ),
        (
            {"do_predict": True, "val_size": 0.1},
            "do_predict: `do_predict: true` writes generated answers; set `predict_with",
        ),
        (
            {"predict_with_generate": True, "compute_accuracy": True, "val_size": 0.1},
            "compute_accuracy: `compute_accuracy: true` needs the scores of given answers",
        ),
        ({"do_eval": True}, "do_eval: `do_eval: true` needs rows to evaluate on; set `val_size` or `eval_dataset`."),
        ({"eval_strategy": "epoch"}, "eval_strategy: `eval_strategy: epoch` needs rows to evaluate on"),
        (
            {"compute_accuracy": True},
            "compute_accuracy: `compute_accuracy: true` is measured in evaluation; set `val_size`",
        ),
        (
            {"lr_scheduler_type": "linear", "lr_scheduler_kwargs": {"power": 1}},
            "lr_scheduler_kwargs: `lr_scheduler_kwargs` has power, which `linear` does not know; it takes none.",
        ),
        (
            {"lr_scheduler_type": "cosine", "lr_scheduler_kwargs": {"power": 1}},
            "lr_scheduler_kwargs: `lr_scheduler_kwargs` has power, which `cosine` does not know; it takes num_cycles.",
        ),
        (
            {"lr_scheduler_type": "cosine_with_min_lr"},
            "lr_scheduler_type: `lr_scheduler_type: cosine_with_min_lr` needs one of min_lr and min_lr_rate in",
        ),
        (
            {"lr_scheduler_type": "warmup_stable_decay"},
            "lr_scheduler_type: `lr_scheduler_type: warmup_stable_decay` needs num_decay_steps in `lr_scheduler_kwarg",
        ),
        (
            {"sample_prompts": "Hi"},
            "sample_prompts: `sample_prompts` has no effect without `sample_steps`; set it too.",
        ),
        ({"report_to": "none,tensorboard"}, "report_to: `report_to: none,tensorboard` mixes none or all with names"),
        ({"callbacks": "my.module"}, "callbacks: `callbacks` has 'my.module'; allowed is package.module:Class."),
        ({"torch_compile_mode": "default"}, "torch_compile_mode: `torch_compile_mode: default` has no effect without"),
    ],
)
def test_contradictions_are_refused(problems, changes, message):
    (found,) = problems(**changes)
    assert found.startswith(message)


@pytest.mark.parametrize(
    "changes",
    [
        {"warmup_ratio": 0.1, "warmup_steps": 0},
        {"warmup_ratio": 0, "warmup_steps": 5},
        {"warmup_steps": 0.5, "logging_steps": 0.1},
        EVALUATED | {"load_best_model_at_end": True, "save_steps": 200},
        EVALUATED | {"load_best_model_at_end": True, "save_steps": 0.3, "eval_steps": 0.1},
        EVALUATED | {"load_best_model_at_end": True, "eval_steps": None, "save_steps": 30, "logging_steps": 10},
        EVALUATED | {"load_best_model_at_end": True, "save_strategy": "best"},
        EVALUATED | {"early_stopping_steps": 3, "metric_for_best_model": "rouge-l", "predict_with_generate": True},
        EVALUATED | {"compute_accuracy": True, "metric_for_best_model": "eval_accuracy", "greater_is_better": True},
        EVALUATED | {"metric_for_best_model": "perplexity"},
        {"val_size": 0.1, "eval_on_start": True},
        {"eval_strategy": "no", "do_eval": False},
        {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr": 1e-6}},
        {"lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": {"num_decay_steps": 10}},
        {"callbacks": "my.module:MyCallback"},
        {"torch_compile": True, "torch_compile_mode": "default"},
        {"bf16": False, "fp16": False},
        {"bf16": True, "pure_bf16": True},
    ],
)
def test_what_fits_together_is_taken(problems, changes):
    assert problems(**changes) == []


def test_two_half_precisions_are_refused(problems):
    assert problems(machine=GPU, bf16=True, fp16=True) == [
        "fp16: `fp16: true` and `bf16: true` exclude each other; keep one of them. (see bf16)"
    ]
    (found,) = problems(machine=GPU, pure_bf16=True, fp16=True)
    assert found == "pure_bf16: `pure_bf16: true` contradicts `fp16: true`; keep one of them. (see fp16)"


@pytest.mark.parametrize(
    "changes",
    [
        {"fp16": True, "bf16": True},
        {"logging_steps": 1.5},
        {"logging_steps": 0},
        {"warmup_steps": -1},
        {"dataloader_prefetch_factor": 2, "dataloader_num_workers": 0},
        {"lr_scheduler_type": "reduce_lr_on_plateau"},
        {"lr_scheduler_type": "greedy"},
        {"lr_scheduler_type": "cosin"},
        {"optim": "adam"},
        {"save_strategy": "sometimes"},
        {"load_best_model_at_end": True},
        {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 100, "save_steps": 150},
        {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 0.1, "save_steps": 150},
        {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 0.2, "save_steps": 0.3},
    ],
)
def test_what_transformers_refuses_is_refused_before_it_is_loaded(problems, changes, tmp_path):
    from transformers import TrainingArguments

    with pytest.raises(ValueError):
        TrainingArguments(output_dir=str(tmp_path), use_cpu=True, **changes)
    found = problems(machine=GPU, val_size=0.1, **changes)
    assert len(found) == 1


def test_the_details_of_each_schedule_are_those_of_transformers():
    from torch.optim.lr_scheduler import ReduceLROnPlateau
    from transformers.optimization import TYPE_TO_SCHEDULER_FUNCTION, GreedyLR

    classes = {"reduce_lr_on_plateau": ReduceLROnPlateau, "greedy": GreedyLR}
    ours = {"optimizer", "num_warmup_steps", "num_training_steps", "last_epoch", "self", "verbose"}
    for schedule, function in TYPE_TO_SCHEDULER_FUNCTION.items():
        parameters = inspect.signature(classes.get(schedule.value, function)).parameters
        assert set(SCHEDULE_DETAILS[schedule.value]) - {"verbose"} == set(parameters) - ours, schedule


def test_the_metrics_of_generated_answers_are_those_that_are_scored():
    from tunesmith.evaluation.text_metrics import score_texts

    assert {name for name, switch in METRICS.items() if switch == "predict_with_generate"} == set(
        score_texts(["a b"], ["a c"])
    )


def test_the_best_perplexity_is_the_smallest_without_saying_so(load):
    assert load(**EVALUATED, metric_for_best_model="eval_perplexity").training.greater_is_better is False
    assert load(**EVALUATED, metric_for_best_model="accuracy", compute_accuracy=True).training.greater_is_better is None
