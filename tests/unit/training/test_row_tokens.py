"""Tokens of the largest micro-batch, counted beforehand and in the batches that are made."""

import numpy as np
import pytest

from tests.tiny.runs import tiny_run, write_place
from tunesmith.models import checkpointing
from tunesmith.training.assembly import build_run_collator
from tunesmith.training.io.token_batches import find_token_batches
from tunesmith.training.row_tokens import count_row_tokens, find_most_tokens
from tunesmith.training.run import prepare_parts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_place(tmp_path_factory.mktemp("run"), num_rows=12)


def prepare(folder, **settings):
    return prepare_parts(tiny_run(folder, **settings))


KINDS = {
    "sft": {},
    "dpo": {"stage": "dpo", "dataset": "pairs", "prefix_sharing": False},
    "rm": {"stage": "rm", "dataset": "pairs", "prefix_sharing": False},
    "kto": {"stage": "kto", "dataset": "ratings"},
    "packed": {"stage": "dpo", "dataset": "pairs", "prefix_sharing": False, "packing": True},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("padding_free", [True, False])
def test_every_row_has_the_tokens_that_a_batch_of_it_has(folder, kind, padding_free):
    parts = prepare(folder, padding_free=padding_free, **KINDS[kind])
    rows, collate = parts.data.train, build_run_collator(parts)
    counted = count_row_tokens(rows, parts.layout)
    for row in range(len(rows)):
        batch = collate([rows[row]])
        scored = [batch, batch["mismatched"]] if kind == "kto" else [batch]
        assert counted[row] == max(part["input_ids"].numel() for part in scored)


def test_a_shared_prompt_takes_less_than_is_counted(folder):
    parts = prepare(folder, stage="dpo", dataset="pairs")
    assert parts.prefix_sharing.is_on
    batch = build_run_collator(parts)([parts.data.train[0]])
    assert batch["input_ids"].numel() < count_row_tokens(parts.data.train, parts.layout)[0]


@pytest.mark.parametrize("padding_free", [True, False])
def test_the_most_are_those_of_the_longest_rows_and_never_of_more_rows_than_there_are(folder, padding_free):
    few = prepare(folder, padding_free=padding_free, per_device_train_batch_size=3)
    tokens = np.sort(count_row_tokens(few.data.train, few.layout))[::-1]
    expected = tokens[:3].sum() if padding_free else 3 * tokens[0]
    assert find_most_tokens(few.config, few.data.train, few.layout) == expected
    many = prepare(folder, padding_free=padding_free, per_device_train_batch_size=100)
    expected = tokens.sum() if padding_free else len(tokens) * tokens[0]
    assert find_most_tokens(many.config, many.data.train, many.layout) == expected


def test_a_budget_is_the_most_unless_one_row_is_longer(folder):
    for budget in (1000, 5):
        parts = prepare(folder, tokens_per_device_batch=budget)
        longest = count_row_tokens(parts.data.train, parts.layout).max()
        assert find_most_tokens(parts.config, parts.data.train, parts.layout) == max(budget, longest)


def test_a_budget_holds_for_pairs_with_both_their_prompts(folder):
    parts = prepare(folder, tokens_per_device_batch=200, **KINDS["dpo"])
    rows, collate = parts.data.train, build_run_collator(parts)
    batches = find_token_batches(parts.config, rows, parts.layout, parts.ranks)
    sizes = [collate([rows[row] for row in batch])["input_ids"].numel() for batch in batches]
    assert len(sizes) > 1
    assert max(sizes) <= 200


def test_nothing_is_known_of_rows_that_are_not_there(folder):
    parts = prepare(folder)
    assert find_most_tokens(parts.config, None, "flat") is None


def test_short_rows_need_no_checkpointing_under_a_large_limit(folder, monkeypatch):
    """256 rows of 128 tokens would not fit; the 12 rows that there are do."""
    monkeypatch.setattr(checkpointing, "measure_free_memory", lambda device: 30_000_000)
    settings = {"per_device_train_batch_size": 256, "cutoff_len": 128}
    parts = prepare(folder, **settings)
    assert not parts.loaded.gradient_checkpointing
    most = find_most_tokens(parts.config, parts.data.train, parts.layout)
    assert any(f"a step of {most:,} tokens" in note for note in parts.loaded.notes)
    parts = prepare(folder, **settings, streaming=True, max_steps=1)
    assert parts.loaded.gradient_checkpointing
    assert any("a step of 32,768 tokens" in note for note in parts.loaded.notes)
