import pytest


@pytest.mark.parametrize(
    ("optim", "details", "message"),
    [
        ("adamw_torch", "a", "optim_args: `optim_args` is 'a'; allowed is name=value,name=value."),
        ("sgd", "momentum=0.9,", "optim_args: `optim_args` is 'momentum=0.9,'; allowed is name=value,name=value."),
        ("sgd", "momentum=0=9", "optim_args: `optim_args` is 'momentum=0=9'; allowed is name=value,name=value."),
        (
            "adamw_torch",
            "foo=0.9",
            "optim_args: `optim_args` has foo, which `adamw_torch` does not know; it takes none. (see optim)",
        ),
        (
            "sgd",
            "momentun=0.9,weight_decay=0.1",
            (
                "optim_args: `optim_args` has momentun, weight_decay, which `sgd` does not know; it takes momentum, "
                "dampening, nesterov; weight decay is `weight_decay`. (see optim)"
            ),
        ),
        ("sgd", "momentum=high", "optim_args: `optim_args` has momentum=high; allowed is a number."),
        ("sgd", "nesterov=2", "optim_args: `optim_args` has nesterov=2; allowed is true or false."),
    ],
)
def test_details_that_would_be_dropped_or_crash_are_refused(problems, optim, details, message):
    assert problems(optim=optim, optim_args=details) == [message]


@pytest.mark.parametrize(("details", "allowed"), [("t_alpha=1.5", "a whole number"), ("t_alpha=5", None)])
def test_whole_numbers_are_whole(problems, monkeypatch, details, allowed):
    monkeypatch.setattr("tunesmith.config.rules.packages.find_spec", lambda name: name)
    found = problems(optim="ademamix", optim_args=details)
    assert found == ([f"optim_args: `optim_args` has {details}; allowed is {allowed}."] if allowed else [])


def test_a_text_that_transformers_takes_for_true_is_refused(problems, monkeypatch):
    monkeypatch.setattr("tunesmith.config.rules.packages.find_spec", lambda name: name)
    assert problems(optim="stable_adamw", optim_args="kahan_sum=true,max_lr=1e-3") == []
    assert problems(optim="stable_adamw", optim_args="kahan_sum=false") == [
        "optim_args: `optim_args` has kahan_sum=false; allowed is true, or leave it out."
    ]


@pytest.mark.parametrize("details", ["momentum=0.9, nesterov=True", "dampening=1e-1", "", None])
def test_details_that_the_optimizer_knows_are_taken(problems, details):
    assert problems(optim="sgd", optim_args=details) == []
