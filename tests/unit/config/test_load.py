import json
import shlex
import subprocess
import sys
import time

import pytest

from tests.unit.config.conftest import CPU, RUN
from tunesmith.config import load_config
from tunesmith.errors import ConfigError

COMPLETE = "model_name_or_path: ./model\ndataset: identity\noutput_dir: out\n"

LLAMAFACTORY_COMMAND = shlex.split("""
    --model_name_or_path ./model --dataset alpaca_zh --template qwen2 --finetuning_type lora --lora_target qwen2_mlp
    --output_dir OUT --per_device_train_batch_size 8 --gradient_accumulation_steps 4 --max_steps 1000
    --learning_rate 1e-4 --logging_steps 10 --save_steps 500 --plot_loss
""")

LLAMAFACTORY_FILE = """
### model
model_name_or_path: ./model
trust_remote_code: true

### method
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all

### dataset
dataset: identity,alpaca_en
template: qwen3
cutoff_len: 2048
max_samples: 1000
overwrite_cache: true
preprocessing_num_workers: 16
dataloader_num_workers: 4
low_cpu_mem_usage: true
remove_unused_columns: false

### output
output_dir: saves/qwen3/lora/sft
logging_steps: 10
save_steps: 500
plot_loss: true
overwrite_output_dir: true
save_only_model: false
report_to: none  # choices: [none, wandb, tensorboard, swanlab, mlflow]

### train
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000
resume_from_checkpoint: null

### eval
val_size: 0.1
per_device_eval_batch_size: 1
eval_strategy: steps
eval_steps: 500
"""


def problems_of(*arguments, **keywords):
    with pytest.raises(ConfigError) as caught:
        load_config(*arguments, **({"environ": {}, "machine": CPU} | keywords))
    return [str(problem) for problem in caught.value.problems]


def test_a_command_known_to_llamafactory_users_is_taken_unchanged(folder):
    config = load_config(None, LLAMAFACTORY_COMMAND, environ={})
    assert config.model.model_name_or_path == "./model"
    assert config.data.dataset == ("alpaca_zh",)
    assert config.adapter.lora_target == ("qwen2_mlp",)
    assert config.training.learning_rate == 1e-4
    assert config.training.max_steps == 1000
    assert config.training.plot_loss is True
    assert config.training.do_train is True


def test_a_llamafactory_file_is_taken_unchanged(folder):
    (folder / "run.yaml").write_text(LLAMAFACTORY_FILE)
    config = load_config("run.yaml", environ={})
    assert config.data.dataset == ("identity", "alpaca_en")
    assert config.distributed.ddp_timeout == 180_000_000
    assert config.training.report_to == ("none",)
    assert config.training.bf16 is True
    assert config.training.eval_strategy == "steps"
    assert config.training.do_eval is True


def test_yaml_json_flags_and_python_are_equal(folder):
    (folder / "run.yaml").write_text(f"{COMPLETE}learning_rate: 1E-4\nplot_loss: yes\n")
    (folder / "run.json").write_text(json.dumps(RUN | {"learning_rate": 0.0001, "plot_loss": True}))
    flags = [
        "--model_name_or_path",
        "./model",
        "--dataset",
        "identity",
        "output_dir=out",
        "--learning_rate=1e-4",
        "--plot_loss",
    ]
    python = RUN | {"learning_rate": "1e-4", "plot_loss": True}
    first, *others = (
        load_config(source, words, environ={})
        for source, words in [("run.yaml", ()), ("run.json", ()), (None, flags), (python, ())]
    )
    assert all(other == first for other in others)
    assert first.training.learning_rate == 1e-4


def test_later_sources_win_and_origins_say_so(folder):
    (folder / "run.yaml").write_text(
        f"{COMPLETE}"
        "seed: 1\nlora_rank: 1\ncutoff_len: 101\nval_size: 0.1\n"
        "sft_args:\n  lora_rank: 2\n  cutoff_len: 102\n  val_size: 0.2\n"
    )
    environ = {"TUNESMITH_CUTOFF_LEN": "103", "TUNESMITH_VAL_SIZE": "0.3"}
    config = load_config("run.yaml", ["--val_size", "0.5"], stage="sft", environ=environ)
    assert (config.training.seed, str(config.origin("seed"))) == (1, "run.yaml:4")
    assert (config.adapter.lora_rank, str(config.origin("lora_rank"))) == (2, "run.yaml:9 (sft_args)")
    assert (config.data.cutoff_len, str(config.origin("cutoff_len"))) == (103, "TUNESMITH_CUTOFF_LEN")
    assert (config.data.val_size, str(config.origin("val_size"))) == (0.5, "--val_size")
    assert str(config.origin("stage")) == "--stage"
    assert str(config.origin("learning_rate")) == "default"
    assert str(config.origin("do_train")) == "implied (dataset is set)"


STAGES = f"{COMPLETE}pt_args:\n  learning_rate: 1e-3\nsft_args:\n  learning_rate: 1e-5\n"


@pytest.mark.parametrize(("stage", "rate"), [("pt", 1e-3), ("sft", 1e-5)])
def test_the_stage_picks_its_section(folder, stage, rate):
    (folder / "run.yaml").write_text(STAGES)
    for words, environ in [([f"--stage={stage}"], {}), ((), {"TUNESMITH_STAGE": stage})]:
        config = load_config("run.yaml", words, environ=environ)
        assert config.objective.stage == stage
        assert config.training.learning_rate == rate
    (folder / "run.yaml").write_text(f"stage: {stage}\n{STAGES}")
    assert load_config("run.yaml", environ={}).training.learning_rate == rate


def test_several_sections_without_a_stage_are_refused(folder):
    (folder / "run.yaml").write_text(STAGES)
    assert problems_of("run.yaml") == [
        "run.yaml: the file has sections for several stages (pt_args, sft_args); say which with `stage:` or `--stage`."
    ]


def test_the_only_section_is_the_stage(folder):
    (folder / "run.yaml").write_text(f"{COMPLETE}pt_args:\n")
    config = load_config("run.yaml", environ={})
    assert config.objective.stage == "pt"
    assert str(config.origin("stage")) == "implied (the only section of run.yaml)"


def test_sections_of_other_stages_are_checked_too(folder):
    (folder / "run.yaml").write_text(
        f"stage: sft\n{STAGES}ppo_args:\n  pref_beta: 0.1\n  pref_bta: 0.1\n  seed: x\nkto_args: x\n".replace(
            "1e-3", "fast"
        )
    )
    assert problems_of("run.yaml") == [
        "run.yaml:6 (pt_args): `learning_rate` is fast; allowed is a number, 0 or more.",
        "run.yaml:11 (ppo_args): `pref_bta` is not a setting. Did you mean `pref_beta`?",
        "run.yaml:13: `kto_args` is 'x'; it holds `key: value` lines, set in by two.",
    ]


def test_a_stage_inside_a_section_must_be_its_own(folder):
    (folder / "run.yaml").write_text(f"{COMPLETE}sft_args:\n  stage: pt\n")
    assert problems_of("run.yaml") == [
        "run.yaml:5: `stage` is pt inside `sft_args`; leave it out there, the section's name says it."
    ]


def test_everything_wrong_is_reported_together_in_the_order_of_the_file(folder):
    (folder / "run.yaml").write_text(
        "model_name_or_path: ./model\n"
        "dataset: identty\n"
        "output_dir: out\n"
        "learning_rat: 1e-4\n"
        "lora_rank: eight\n"
        "fp16: true\n"
        "bf16: true\n"
        "evaluation_strategy: steps\n"
        "deepspeed: ds.json\n"
        "cutoff_len: 4\n"
        "dataset_info:\n"
        "  mine:\n"
        "    file_name: x.json\n"
        "    colums: {}\n"
        "    columns:\n"
        "      promt: q\n"
    )
    found = problems_of("run.yaml", ["--flash_attn", "sdap"], environ={"TUNESMITH_SEDE": "1"})
    expected = [
        ("run.yaml:2", "`dataset` has 'identty', which is neither in the catalogue"),
        ("run.yaml:4", "`learning_rat` is not a setting. Did you mean `learning_rate`?"),
        ("run.yaml:5", "`lora_rank` is eight; allowed is a whole number, 1 or more."),
        ("run.yaml:6", "`fp16: true` needs a GPU, and no GPU was found on this machine."),
        ("run.yaml:6", "`fp16: true` and `bf16: true` exclude each other; keep one of them. (see run.yaml:7)"),
        ("run.yaml:8", "`evaluation_strategy` is called `eval_strategy` here; rename it."),
        ("run.yaml:9", "`deepspeed` is ds.json; this key is known, but not supported yet (DeepSpeed)"),
        ("run.yaml:10", "`cutoff_len` is 4; allowed is 8 or more"),
        ("run.yaml:14", "`dataset_info.mine.colums` is not a key of a data set. Did you mean `columns`?"),
        ("run.yaml:16", "`dataset_info.mine.columns.promt` is not a key of a data set. Did you mean `prompt`?"),
        ("TUNESMITH_SEDE", "there is no setting `sede`. Did you mean `TUNESMITH_SEED`?"),
        ("--flash_attn", "`flash_attn` is sdap; allowed is one of auto, disabled, eager, sdpa"),
    ]
    for problem, (where, text) in zip(found, expected, strict=True):
        assert problem.startswith(f"{where}: {text}")


@pytest.mark.parametrize(("key", "least"), [("dataloader_num_workers", 0), ("dataloader_prefetch_factor", 1)])
def test_a_number_of_workers_that_would_bring_down_the_machine_is_refused(load, key, least):
    with pytest.raises(ConfigError, match=f"`{key}` is 10000; allowed is auto or a whole number, from {least} to 1024"):
        load(**{key: 10000})


def test_errors_inside_nested_values_have_their_line(folder):
    (folder / "run.yaml").write_text(f"{COMPLETE}row_variables:\n  name: Ada\n  author:\n    x: y\n")
    assert problems_of("run.yaml") == ["run.yaml:6: `row_variables.author` is {'x': 'y'}; allowed is a single value."]


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("row_variables.a.b=5", "`row_variables.a` is {'b': '5'}; allowed is a single value."),
        ("lr_scheduler_kwargs={a: {b: 1}}", "`lr_scheduler_kwargs.a` is {a: {b: 1}}; allowed is a single value."),
    ],
)
def test_words_that_nest_too_deep_are_refused_in_plain_words(folder, word, problem):
    assert problems_of(RUN, [word]) == [f"{word.split('=')[0]}=...: {problem}"]


def test_parts_of_a_mapping_can_be_set_alone(folder):
    source = RUN | {"row_variables": {"name": "Ada", "author": "Bob"}, "dataset_info": {"a": {"file_name": "a.json"}}}
    words = [
        "row_variables.name=Eve",
        "dataset_info.a.num_samples=3",
        "lr_scheduler_type=polynomial",
        "lr_scheduler_kwargs.power=1e1",
    ]
    config = load_config(source, words, environ={})
    assert config.data.row_variables == {"name": "Eve", "author": "Bob"}
    assert config.data.dataset_info == {"a": {"file_name": "a.json", "num_samples": 3}}
    assert config.training.lr_scheduler_kwargs == {"power": 10}
    (problem,) = problems_of(RUN, ["seed.x=1"])
    assert problem.endswith("It has no parts, so `seed.x` means nothing.")


def test_empty_values(folder):
    (folder / "run.yaml").write_text(
        f"{COMPLETE}"
        "warmup_ratio: null\nlora_alpha: 'none'\neval_dataset:\nrow_variables: ~\ndefault_system: ''\ntemplate: null\n"
    )
    config = load_config("run.yaml", environ={})
    assert config.training.warmup_ratio is None
    assert config.adapter.lora_alpha is None
    assert config.data.eval_dataset == ()
    assert config.data.row_variables == {}
    assert config.data.default_system == ""
    assert config.data.template is None
    (problem,) = problems_of(RUN | {"seed": None})
    assert problem.startswith("seed: `seed` is empty (null); allowed is a whole number")
    assert problem.endswith("Leave it out to get the default.")


def test_words_that_yaml_1_1_takes_for_booleans_stay_words(folder):
    (folder / "run.yaml").write_text(f"{COMPLETE}eval_strategy: no\nsave_strategy: 'no'\nrun_name: on\n")
    config = load_config("run.yaml", environ={})
    assert (config.training.eval_strategy, config.training.save_strategy, config.training.run_name) == (
        "no",
        "no",
        "on",
    )


def test_overrides_may_be_a_mapping(folder):
    config = load_config(RUN, {"learning_rate": 1e-4}, environ={})
    assert config.training.learning_rate == 1e-4
    assert str(config.origin("learning_rate")) == "override learning_rate"
    assert problems_of(RUN, {"sed": 1}) == ["override sed: `sed` is not a setting. Did you mean `seed`?"]


def test_a_section_given_as_a_setting_is_called_what_it_is(folder):
    for word in ("sft_args=5", "sft_args.seed=5"):
        (found,) = problems_of(RUN, [word])
        assert found.endswith(
            ": `sft_args` is a section of a file and holds settings; give those themselves, by their keys."
        )


def test_a_key_like_nothing_points_to_the_reference(folder):
    assert problems_of(RUN | {"zzzzzz": 1}) == [
        "zzzzzz: `zzzzzz` is not a setting. See docs/options.md for all of them."
    ]


def test_secrets_are_never_shown(folder):
    config = load_config(RUN | {"hf_hub_token": "hunter2"}, environ={})
    assert config.model.hf_hub_token == "hunter2"
    assert "hunter2" not in f"{config}{config.to_yaml()}{config.to_flat()}"
    assert problems_of(RUN | {"hf_hub_token": ["hunter2"]}) == [
        "hf_hub_token: `hf_hub_token` is set to something else; allowed is text or null."
    ]


def test_switches_with_two_names_set_both(load):
    assert load(disable_gradient_checkpointing=True).model.gradient_checkpointing is False
    assert load(disable_shuffling=True).loading.train_sampling_strategy == "sequential"
    assert load(group_by_length=True).loading.train_sampling_strategy == "group_by_length"
    assert load(neat_packing=True).data.packing is True


def test_training_is_implied_by_rows_to_train_on(load):
    assert load().training.do_train is True
    assert load(do_eval=True, val_size=0.1).training.do_train is False
    assert load(do_eval=True, do_train=True, val_size=0.1).training.do_train is True


@pytest.mark.parametrize(
    "changes",
    [
        {"save_strategy": "best"},
        {"save_strategy": "best", "metric_for_best_model": None},
        {"early_stopping_steps": 2},
        {"load_best_model_at_end": True, "save_steps": 500},
        {"lr_scheduler_type": "reduce_lr_on_plateau"},
    ],
)
def test_the_best_evaluation_is_that_of_the_loss_unless_a_metric_is_named(load, changes):
    measured = {"val_size": 0.1, "eval_strategy": "steps", "eval_steps": 100}
    config = load(**measured, **changes)
    assert config.training.metric_for_best_model == "loss"
    assert str(config.origin("metric_for_best_model")) == f"implied ({next(iter(changes))} goes by it)"
    named = load(**measured, **changes | {"metric_for_best_model": "eval_accuracy", "compute_accuracy": True})
    assert named.training.metric_for_best_model == "eval_accuracy"
    assert load(**measured).training.metric_for_best_model is None


def test_null_leaves_a_value_to_follow_from_others(load):
    assert load(neat_packing=True, packing=None).packs is True


def test_the_environment_of_the_process_is_read(folder, monkeypatch):
    monkeypatch.setenv("TUNESMITH_SEED", "7")
    assert load_config(RUN).training.seed == 7


@pytest.mark.processes
def test_a_refusal_is_quick_and_loads_no_torch(folder):
    code = (
        "import sys\nfrom tunesmith.config import load_config\nfrom tunesmith.errors import ConfigError\n"
        "try:\n    load_config({'seed': 'x'})\nexcept ConfigError as error:\n    assert error.exit_code == 2\n"
        "else:\n    raise SystemExit('accepted')\n"
        "heavy = {'torch', 'transformers', 'numpy', 'datasets'} & set(sys.modules)\n"
        "raise SystemExit(str(heavy) if heavy else 0)\n"
    )
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (
        time.perf_counter() - start < 5
    )  # takes 0.3 s here; a busy machine may take longer, torch takes more than this
