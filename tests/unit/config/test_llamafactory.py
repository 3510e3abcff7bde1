import dataclasses

import pytest

from tunesmith.config.coercion import PlainText
from tunesmith.config.llamafactory import find_new_name, known_keys, renamed_keys
from tunesmith.config.settings import all_settings


def test_every_key_of_transformers_is_a_setting_or_known():
    from transformers import Seq2SeqTrainingArguments

    names = {field.name for field in dataclasses.fields(Seq2SeqTrainingArguments) if field.init}
    assert names - set(all_settings()) - set(known_keys()) == set()


def test_defaults_are_those_of_transformers():
    from transformers import Seq2SeqTrainingArguments

    deliberate = {
        "gradient_checkpointing": "auto",
        "bf16": None,  # chosen by the machine
        "fp16": None,
        "report_to": ("none",),  # a list here
        "dataloader_num_workers": "auto",
        "dataloader_prefetch_factor": "auto",
        "dataloader_pin_memory": "auto",
        "dataloader_persistent_workers": "auto",
    }
    theirs = {
        field.name: field.default_factory() if field.default is dataclasses.MISSING else field.default
        for field in dataclasses.fields(Seq2SeqTrainingArguments)
        if field.init and (field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING)
    }
    ours = {key: setting.default for key, setting in all_settings().items() if key in theirs}
    assert ours == {key: theirs[key] for key in ours} | deliberate


def test_no_key_is_both_supported_and_refused():
    assert set(all_settings()) & set(known_keys()) == set()
    assert set(all_settings()) & set(renamed_keys()) == set()
    assert set(known_keys()) & set(renamed_keys()) == set()


def test_every_new_name_exists():
    assert {find_new_name(key) for key in renamed_keys()} <= set(all_settings()) | set(known_keys())


@pytest.mark.parametrize(
    ("key", "value", "refusal"),
    [
        ("deepspeed", "z3.json", "known, but not supported yet (DeepSpeed); remove it or leave it at null"),
        ("use_unsloth", True, "known, but not supported yet (faster kernels); remove it or leave it at false or null"),
        ("low_cpu_mem_usage", False, "known, but only true or null is supported yet; remove it"),
        ("remove_unused_columns", True, "known, but only false or null is supported yet; remove it"),
    ],
)
def test_known_keys_are_refused_with_these_words(problems, key, value, refusal):
    (problem,) = problems(**{key: value})
    assert problem.startswith(
        f"{key}: `{key}` is {str(value).lower() if isinstance(value, bool) else repr(value)}; this key is {refusal}"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("low_cpu_mem_usage", "True"),
        ("remove_unused_columns", "no"),
        ("deepspeed", None),
        ("deepspeed", PlainText("null")),  # as files and command lines have it
        ("fsdp", PlainText("")),
        ("fsdp", ""),
        ("use_unsloth", False),
        ("infer_backend", "huggingface"),
        ("include_num_input_tokens_seen", "no"),
        ("debug", ""),
    ],
)
def test_values_that_ask_for_what_happens_anyway_are_taken(problems, key, value):
    assert problems(**{key: value}) == []


def test_an_older_spelling_is_refused_with_the_new_one(problems):
    assert problems(no_cuda=True) == ["no_cuda: `no_cuda` is called `use_cpu` here; rename it."]
