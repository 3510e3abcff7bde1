import pytest


@pytest.mark.parametrize("value", [2.5, 0, -1, "x", True])
def test_ranks_are_whole_numbers(problems, value):
    assert problems(lora_rank_pattern={"q_proj": value}) == [
        f"lora_rank_pattern: `lora_rank_pattern` has q_proj: {value}; allowed is a whole number, 1 or more."
    ]


@pytest.mark.parametrize("value", [0, -0.5, "x", True])
def test_strengths_are_numbers(problems, value):
    assert problems(lora_alpha_pattern={"q_proj": value}) == [
        f"lora_alpha_pattern: `lora_alpha_pattern` has q_proj: {value}; allowed is a number, more than 0."
    ]


def test_patterns_are_regular_expressions(problems):
    (problem,) = problems(lora_rank_pattern={"(q_proj": 3})
    assert problem.startswith("lora_rank_pattern: `lora_rank_pattern` has the pattern '(q_proj', which is no regular")
    assert problem.endswith("expression: missing ), unterminated subpattern at position 0.")


@pytest.mark.parametrize("rate", ["much", -1e-4, True])
def test_rates_are_numbers(problems, rate):
    (problem,) = problems(learning_rate_groups={"embed": rate})
    assert f"`learning_rate_groups` has embed: {rate}; allowed is a learning rate of 0 or more" in problem


def test_patterns_of_parameters_are_regular_expressions(problems):
    (problem,) = problems(learning_rate_groups={"(": 1e-4})
    assert "`learning_rate_groups` has the pattern '(', which is no regular expression" in problem


def test_whole_ranks_and_any_strengths_are_taken(problems):
    changes = {"lora_rank_pattern": {"q_proj": 2, r"layers\.0\..*up_proj": 4.0}, "lora_alpha_pattern": {"q_proj": 0.5}}
    assert problems(**changes) == []
