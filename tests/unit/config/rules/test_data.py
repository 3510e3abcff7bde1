import pytest

from tunesmith.config.templates import TEMPLATE_NAMES, TOOL_FORMAT_NAMES


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cutoff_len": 7}, "cutoff_len: `cutoff_len` is 7; allowed is 8 or more, since a role header"),
        (
            {"mask_history": True, "train_on_prompt": True},
            "mask_history: `mask_history: true` learns only the last answer and",
        ),
        (
            {"stage": "pt", "mask_history": True},
            "mask_history: `mask_history: true` is about conversations and has no effect",
        ),
        (
            {"stage": "pt", "tool_format": "qwen", "template": "chatml"},
            "tool_format: `tool_format: qwen` is about conv",
        ),
        (
            {"tool_format": "qwem", "template": "chatml"},
            "tool_format: `tool_format` is qwem; allowed is one of default",
        ),
        ({"tool_format": "qwen"}, "tool_format: `tool_format: qwen` goes into a `template` that is named; name one"),
        (
            {"ignore_pad_token_for_loss": False},
            (
                "ignore_pad_token_for_loss: `ignore_pad_token_for_loss: false` learns padding, and with `padding_free: "
                "auto` batches may have none; set `padding_free: false` too, or remove it."
            ),
        ),
        (
            {"neat_packing": True, "packing": False},
            "neat_packing: `neat_packing: true` packs and `packing: false` does not",
        ),
        (
            {"val_size": 0.1, "eval_dataset": "identity"},
            "val_size: `val_size: 0.1` holds back rows and `eval_dataset: identity` names",
        ),
        ({"val_size": 2.5}, "val_size: `val_size` is 2.5; allowed is a share below 1 or a whole number of rows."),
        (
            {"disable_shuffling": True, "group_by_length": True},
            (
                "disable_shuffling: `disable_shuffling: true` (sequential) and `group_by_length: "
                "true` (group_by_length) ask for "
                "different orders of the rows; keep one of them. (see group_by_length)"
            ),
        ),
        (
            {"group_by_length": True, "train_sampling_strategy": "random"},
            "group_by_length: `group_by_length: true` (group_by_length) and `train_sampling_strategy: random` (random",
        ),
        (
            {"dataloader_prefetch_factor": 2, "dataloader_num_workers": 0},
            "dataloader_prefetch_factor: `dataloader_prefetch_factor: 2` needs worker processes",
        ),
        (
            {"dataloader_persistent_workers": True, "dataloader_num_workers": 0},
            "dataloader_persistent_workers: `dataloader_persistent_workers: true` needs",
        ),
        ({"top_p": 0}, "top_p: `top_p` is 0; allowed is a number from above 0 to 1, or set `do_sample: false`."),
    ],
)
def test_contradictions_are_refused(problems, changes, message):
    (found,) = problems(**changes)
    assert found.startswith(message)


def test_holding_back_rows_needs_rows(problems):
    found = problems(without=("dataset",), val_size=0.1, purpose="read")
    assert found == ["val_size: `val_size` holds back a part of `dataset`, which is not set."]


@pytest.mark.parametrize(
    "changes",
    [
        {"cutoff_len": 8},
        {"packing": True, "max_samples": 10},
        {"val_size": 1},
        {"val_size": 100, "stage": "pt"},
        {"group_by_length": True, "train_sampling_strategy": "group_by_length"},
        {"dataloader_prefetch_factor": 2, "dataloader_num_workers": 1},
        {"top_p": 0, "do_sample": False},
        {"neat_packing": True, "packing": True},
        {"ignore_pad_token_for_loss": False, "padding_free": False},
        {"streaming": False},
    ],
)
def test_what_fits_together_is_taken(problems, changes):
    assert problems(**changes) == []


@pytest.mark.parametrize("value", [1.0, "1.0", "1e0"])
def test_all_rows_as_a_share_are_not_one_row(problems, load, value):
    (found,) = problems(val_size=value)
    assert found.endswith(" As a share, 1.0 leaves no rows to train on; write 1 for one row.")
    assert problems(val_size="0.5") == problems(val_size="1") == problems(val_size=2.0) == []
    assert str(load(val_size=1).data.val_size) == str(load(val_size="1").data.val_size) == "1"


@pytest.mark.parametrize(("name", "nearest"), [("ChatML", "chatml"), ("lama3", "llama3"), ("Auto", "auto")])
def test_an_unknown_template_is_refused_with_the_nearest(problems, name, nearest):
    for purpose in ("train", "generate", "read"):
        (found,) = problems(template=name, purpose=purpose)
        assert found == (
            f"template: `template` is {name}; allowed is auto or one of the 126 names that `tunesmith template list` "
            f"shows. Did you mean `{nearest}`?"
        )


def test_plain_text_uses_no_template(problems):
    assert problems(stage="pt", template="nonsense") == []


@pytest.mark.parametrize("name", [None, "auto", "qwen2_5"])
def test_a_known_template_is_taken(problems, name):
    assert problems(template=name) == []


def test_settings_know_the_names_of_all_templates():
    from tunesmith.data.chat.catalog import template_names

    assert template_names() == TEMPLATE_NAMES


def test_settings_know_the_names_of_all_tool_formats():
    from tunesmith.data.chat.tools import TOOL_FORMATS

    assert tuple(sorted(TOOL_FORMATS)) == TOOL_FORMAT_NAMES


def test_plain_text_may_be_packed_by_either_name(problems):
    assert problems(stage="pt", neat_packing=True) == []
