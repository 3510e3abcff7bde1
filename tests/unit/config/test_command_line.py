import pytest

from tunesmith.config.command_line import parse_command_line, parse_overrides


def parse(*words):
    entries, problems = parse_overrides(words)
    return {entry.key: entry.value for entry in entries}, [str(problem) for problem in problems]


@pytest.mark.parametrize(
    ("argv", "source", "overrides"),
    [
        (["run.yaml"], "run.yaml", ()),
        (["run.yaml", "seed=1", "--plot_loss"], "run.yaml", ("seed=1", "--plot_loss")),
        (["seed=1"], None, ("seed=1",)),
        (["--seed", "1"], None, ("--seed", "1")),
        (["runs/lr=1.yaml", "seed=1"], "runs/lr=1.yaml", ("seed=1",)),
        ([], None, ()),
    ],
)
def test_the_first_word_is_the_file_unless_it_is_a_setting(argv, source, overrides):
    assert parse_command_line(argv) == (source, overrides)


def test_every_way_of_writing_a_setting_means_the_same():
    for words in (
        ["learning_rate=1e-4"],
        ["--learning_rate", "1e-4"],
        ["--learning_rate=1e-4"],
        ["--learning-rate", "1e-4"],
    ):
        assert parse(*words) == ({"learning_rate": "1e-4"}, [])


def test_a_value_may_hold_spaces_equal_signs_and_lines():
    assert parse("default_system=You = nice\nand brief") == ({"default_system": "You = nice\nand brief"}, [])
    assert parse("--optim_args", "a=1,b=2") == ({"optim_args": "a=1,b=2"}, [])
    assert parse("--row_variables", "name=Ada", "author=Bob") == ({"row_variables": ["name=Ada", "author=Bob"]}, [])


def test_flags_lists_and_settings_may_follow_each_other():
    words = ["--dataset", "a", "b", "--plot_loss", "seed=1", "--max_steps", "-1", "lr_scheduler_kwargs.min_lr=1e-5"]
    assert parse(*words) == (
        {
            "dataset": ["a", "b"],
            "plot_loss": "true",
            "seed": "1",
            "max_steps": "-1",
            "lr_scheduler_kwargs.min_lr": "1e-5",
        },
        [],
    )


def test_a_bare_flag_is_true_and_its_negation_false():
    assert parse("--plot_loss", "--no_use_fast_tokenizer") == ({"plot_loss": "true", "use_fast_tokenizer": "false"}, [])


def test_a_known_key_that_is_not_supported_ends_the_list_before_it():
    assert parse("--dataset", "a", "deepspeed=x.json") == ({"dataset": "a", "deepspeed": "x.json"}, [])


def test_an_unknown_key_ends_the_list_before_it_and_is_left_to_the_check_of_names():
    assert parse("--adapter_name_or_path", "a", "b", "max_new_token=3") == (
        {"adapter_name_or_path": ["a", "b"], "max_new_token": "3"},
        [],
    )
    assert parse("--default_system", "a=b") == ({"default_system": "a=b"}, [])


def test_a_flag_without_its_value_is_a_problem():
    _, problems = parse("--seed")
    assert problems == ["--seed: `seed` needs a value after it; allowed is a whole number, from 0 to 4294967295."]


def test_words_that_are_no_settings_are_problems():
    assert parse("seed")[1] == ["seed: this word is neither `key=value` nor `--key value`."]
    assert parse("plot_loss=true", "run.yaml")[1] == [
        "run.yaml: the configuration file comes first, before any setting, and there can be only one."
    ]


def test_an_unknown_flag_is_kept_for_the_check_of_names():
    assert parse("--no_such_thing") == ({"no_such_thing": "true"}, [])


def test_a_key_with_two_values_is_a_problem_that_shows_both():
    assert parse("seed=1", "--seed", "2")[1] == [
        "--seed: `seed` is given twice on the command line, as 1 and 2; keep one of them."
    ]
    assert parse("hf_hub_token=abc", "hf_hub_token=def")[1] == [
        "hf_hub_token=...: `hf_hub_token` is given twice on the command line, with different values; keep one of them."
    ]
    assert parse("seed=1", "--seed", "1", "optim_args.a=1", "optim_args.b=2")[1] == []
