"""Documents of continued pre-training: nothing is lost between reading and training, whatever the chunks are."""

import json
from collections import Counter

import pytest
from tokenizers.processors import TemplateProcessing

from tests.tiny.tokenizers import metaspace_tokenizer
from tunesmith.config import load_config
from tunesmith.data import prepare_data

TEXTS = [f"Document {number} says hello. " * (1 + number % 4) for number in range(2_345)]


def tokenizer_with(rule):
    """Start and end token as `rule` says they are put around a text."""
    tokenizer = metaspace_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=rule, pair="$A $B", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return tokenizer


def blocks_of(folder, tokenizer, **settings):
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    config = load_config(
        {
            "model_name_or_path": "some/model",
            "stage": "pt",
            "dataset": "texts",
            "dataset_info": {"texts": {"file_name": "texts.jsonl", "formatting": "text"}},
            "dataset_dir": str(folder),
            "dataset_cache_dir": str(folder / "cache"),
            "output_dir": str(folder / "out"),
            "cutoff_len": 128,
            "max_steps": 1,
            **settings,
        },
        environ={},
    )
    return prepare_data(config, tokenizer, None).train


@pytest.fixture(scope="module")
def tokens():
    """How often each token is in the texts alone."""
    encodings = metaspace_tokenizer()(TEXTS, add_special_tokens=False)["input_ids"]
    return Counter(token for ids in encodings for token in ids)


@pytest.mark.parametrize(
    ("rule", "start", "settings"),
    [
        ("$A", [], {}),
        ("<s> $A", [1], {}),
        ("<s> $A </s>", [1], {}),
        ("<s> $A", [1], {"neat_packing": True}),
        ("<s> $A </s>", [1], {"preprocessing_batch_size": 77}),
    ],
    ids=str,
)
def test_every_token_of_every_document_is_in_a_block(tokens, rule, start, settings, tmp_path):
    expected = tokens + Counter({token: len(TEXTS) for token in (*start, 2)})
    blocks = blocks_of(tmp_path, tokenizer_with(rule), **settings)
    found, trained, sizes = Counter(), 0, []
    for block in blocks:
        sizes.append(sum(len(piece["input_ids"]) for piece in block))
        for piece in block:
            found.update(piece["input_ids"].tolist())
            trained += sum(end - begin for begin, end in piece["trained_spans"].reshape(-1, 2))
    assert found == expected
    assert (found[1], found[2]) == (len(TEXTS) * len(start), len(TEXTS))
    assert set(sizes[:-1]) == {128}
    assert 0 < sizes[-1] <= 128
    assert trained == sum(sizes)


def test_documents_that_are_not_packed_begin_and_end_by_the_same_rule(tmp_path):
    tokenizer = tokenizer_with("<s> $A")
    rows = blocks_of(tmp_path, tokenizer, packing=False, max_samples=7)
    for text, row in zip(TEXTS, rows, strict=False):
        assert row["input_ids"].tolist() == [1, *tokenizer.encode(text, add_special_tokens=False), 2]
