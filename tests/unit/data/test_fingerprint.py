from dataclasses import replace

import pytest

from tests.tiny.tokenizers import byte_level_tokenizer, metaspace_tokenizer
from tunesmith.data.fingerprint import content_key, tokenizer_fingerprint
from tunesmith.data.sources import Columns, DatasetSpec


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n')
    return DatasetSpec(name="set", files=(tmp_path / "rows.jsonl",), formatting="text")


def key(spec, **changes):
    parts = {
        "tokenizer_digest": "t",
        "template_fingerprint": "f",
        "options": {"cutoff_len": 8},
        "selection": {"max_samples": None},
    }
    return content_key(spec, **{**parts, **changes})


def test_the_key_depends_on_everything_that_makes_the_rows(spec):
    base = key(spec)
    others = [
        key(spec, tokenizer_digest="other"),
        key(spec, template_fingerprint="other"),
        key(spec, template_fingerprint=None),
        key(spec, options={"cutoff_len": 9}),
        key(spec, selection={"max_samples": 3}),
        key(replace(spec, columns=Columns(prompt="body"))),
        key(replace(spec, num_samples=4)),
        key(replace(spec, row_variables=(("name", "Ada"),))),
        key(replace(spec, files=spec.files * 2)),
    ]
    spec.files[0].write_text('{"text": "b"}\n')
    assert len({base, key(spec), *others}) == len(others) + 2


def test_the_key_does_not_depend_on_names_and_paths(spec, tmp_path):
    base = key(spec)
    moved = tmp_path / "elsewhere" / "other.jsonl"
    moved.parent.mkdir()
    spec.files[0].rename(moved)
    assert key(replace(spec, name="other", files=(moved,))) == base


def test_tokenizers_are_told_apart_by_what_they_do():
    base = tokenizer_fingerprint(byte_level_tokenizer())
    assert tokenizer_fingerprint(byte_level_tokenizer()) == base
    assert tokenizer_fingerprint(byte_level_tokenizer(vocab_size=400)) != base
    assert tokenizer_fingerprint(byte_level_tokenizer(extra_specials=("<|tool|>",))) != base
    assert tokenizer_fingerprint(metaspace_tokenizer()) != base
    changed = byte_level_tokenizer()
    changed.eos_token = "<|endoftext|>"
    assert tokenizer_fingerprint(changed) != base


def test_using_a_tokenizer_does_not_change_its_fingerprint():
    tokenizer = byte_level_tokenizer()
    base = tokenizer_fingerprint(tokenizer)
    tokenizer(["a long text", "b"], truncation=True, max_length=3, padding=True)
    assert tokenizer_fingerprint(tokenizer) == base
