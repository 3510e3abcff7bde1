from tunesmith.config.environment import read_environment


def test_variables_are_settings_in_capitals():
    entries, problems = read_environment({"TUNESMITH_SEED": "1", "PATH": "x", "TUNESMITH_DEEPSPEED": "x"})
    assert [(entry.key, entry.value, entry.origin.where) for entry in entries] == [
        ("deepspeed", "x", "TUNESMITH_DEEPSPEED"),
        ("seed", "1", "TUNESMITH_SEED"),
    ]
    assert problems == []


def test_empty_and_reserved_variables_are_no_settings():
    assert read_environment({"TUNESMITH_SEED": "", "TUNESMITH_ASSETS": "x"}) == ([], [])


def test_an_unknown_variable_comes_with_the_nearest():
    _, problems = read_environment({"TUNESMITH_LEARNIN_RATE": "1"})
    (problem,) = problems
    assert problem.where == "TUNESMITH_LEARNIN_RATE"
    assert problem.message == (
        "there is no setting `learnin_rate`. Did you mean `TUNESMITH_LEARNING_RATE`? Unset or rename the variable."
    )
