import pytest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"finetuning_type": "full", "adapter_name_or_path": "some/adapter"},
            (
                "adapter_name_or_path: `adapter_name_or_path` is set with `finetuning_type: full`; "
                "adapters go on only with "
                "`finetuning_type: lora`. To train whole weights from there, export the merged model first. "
                "(see finetuning_type)"
            ),
        ),
        (
            {"create_new_adapter": True},
            (
                "create_new_adapter: `create_new_adapter: true` merges the adapters of "
                "`adapter_name_or_path`, which is empty; "
                "name them or remove `create_new_adapter`."
            ),
        ),
    ],
)
def test_contradictions_are_refused(problems, changes, message):
    assert problems(**changes) == [message]


@pytest.mark.parametrize(
    "changes",
    [
        {"adapter_name_or_path": ["org/a", "org/b"], "create_new_adapter": True},
        {"adapter_name_or_path": "org/a", "adapter_folder": "checkpoint-5"},
    ],
)
def test_what_fits_together_is_taken(problems, changes):
    assert problems(**changes) == []


def test_a_folder_inside_adapters_needs_some(problems):
    (problem,) = problems(adapter_folder="checkpoint-5")
    assert "is a folder inside `adapter_name_or_path`, which is empty" in problem
