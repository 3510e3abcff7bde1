"""Ids and labels of LLaMA-Factory for fixed conversations. Where ours differ, the rule is in docs/templates.md."""

import json

import pytest
from transformers import AutoTokenizer

from tests.unit.data.chat.conversations import as_dicts, template_of
from tunesmith.data.batches import IGNORE_INDEX
from tunesmith.data.records import Conversation, Message
from tunesmith.data.tokenization import EncodingOptions, build_encoder

FILES = {
    "gemma3.gemma3": "gemma3",
    "llama2.llama2": "llama2",
    "llama3.llama3": "llama3",
    "qwen3.qwen3": "qwen3",
    "smollm2.chatml": "chatml",
}
NEEDS_MODEL = {"smollm2.chatml"}
MULTI_TURN = {"system_two_turns", "three_turns", "think_history"}
DIFFERENT_IDS = {
    ("llama2", "leading_space_answer"): "the answer's own leading space is kept beside the template's",
    ("qwen3", "leading_newline_answer"): "Qwen3's template strips newlines before the words of an answer",
}


def load_tokenizer(name, assets, request):
    if name != "smollm2":
        return AutoTokenizer.from_pretrained(assets / "tokenizers" / name)
    from tunesmith.models.gguf.metadata import read_metadata
    from tunesmith.models.gguf.tokenizer import build_tokenizer

    return build_tokenizer(read_metadata(request.getfixturevalue("smollm2_file")))


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow if name in NEEDS_MODEL else ()) for name in sorted(FILES)],
)
def parity(request, assets):
    fixture = json.loads((assets / "parity" / f"{request.param}.json").read_text(encoding="utf-8"))
    tokenizer = load_tokenizer(fixture["tokenizer"], assets, request)
    # LLaMA-Factory reads special-token text in questions as tokens.
    template = template_of(FILES[request.param], tokenizer, allow_special_tokens=True)
    template.apply_to_tokenizer(tokenizer)
    encoder = build_encoder(tokenizer, template, EncodingOptions("sft", 2048))
    return template, tokenizer, encoder, fixture["cases"]


def labels_of(row):
    labels = [IGNORE_INDEX] * len(row.input_ids)
    for start, end in row.trained_spans.reshape(-1, 2):
        labels[start:end] = row.input_ids[start:end].tolist()
    return labels


def without_separators(case, tokenizer, marker):
    """The labels of the fixture without what follows an end marker: it is learnt there and not here."""
    end = tokenizer.convert_tokens_to_ids(marker)
    labels = list(case["labels"])
    for place in range(1, len(labels)):
        if case["input_ids"][place - 1] == end and labels[place - 1] != IGNORE_INDEX and labels[place] != end:
            labels[place] = IGNORE_INDEX
    return labels


def test_ids_and_labels_equal_llama_factory(parity):
    template, tokenizer, encoder, cases = parity
    compared = 0
    for case in cases:
        if (template.name, case["name"]) in DIFFERENT_IDS or (template.rewrites_history and case["name"] in MULTI_TURN):
            continue
        conversation = Conversation(tuple(Message(m["role"], m["content"]) for m in case["messages"]))
        ((row,),) = encoder.encode([conversation])
        assert row.input_ids.tolist() == case["input_ids"], case["name"]
        assert labels_of(row) == without_separators(case, tokenizer, template.end_markers[0]), case["name"]
        compared += 1
    assert compared >= 7


def test_where_ids_differ_they_are_what_serving_sends(parity):
    template, tokenizer, encoder, cases = parity
    for case in cases:
        conversation = Conversation(tuple(Message(m["role"], m["content"]) for m in case["messages"]))
        (rows,) = encoder.encode([conversation])
        differs = [row.input_ids.tolist() for row in rows] != [case["input_ids"]]
        expected = (template.name, case["name"]) in DIFFERENT_IDS or (
            template.rewrites_history and case["name"] in MULTI_TURN
        )
        assert differs == expected, case["name"]
        if differs:
            served = tokenizer.apply_chat_template(as_dicts(conversation), return_dict=False)
            assert rows[-1].input_ids.tolist() == served, case["name"]
