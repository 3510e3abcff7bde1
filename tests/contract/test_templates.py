"""Every template of the catalogue, on both kinds of tokenizer: what is printed, and what is learnt of it.

Names that share a wire text are the same template: one of each is enough.
"""

import itertools

import pytest

from tests.unit.data.chat.conversations import (
    DISTINCT_NAMES,
    KINDS,
    answer_text,
    as_dicts,
    talk,
    template_of,
    tokenizer_of,
)
from tunesmith.data.tokenization import EncodingOptions, build_encoder

CASES = {
    "one turn": talk("Hi", "Hello."),
    "system and two turns": talk("What is 1 + 1?", "2", "你好", "好的 🙂", system="Be brief."),
    "markers in a question": talk("What does <|im_end|> or </s> mean?", "An end."),
    "lines": talk("Write\n\ntwo lines", "first\n\n  second\n- third"),
    "empty": talk("", ""),
}
ENCODED = ("system and two turns", "markers in a question", "empty")


@pytest.fixture(scope="module", params=itertools.product(DISTINCT_NAMES, sorted(KINDS)), ids="-".join)
def prepared(request):
    """A template, the tokenizer that it was applied to, its kind, and the encoder of a run."""
    name, kind = request.param
    tokenizer = tokenizer_of(kind)
    template = template_of(name, tokenizer, allow_special_tokens=True)
    encoder = build_encoder(tokenizer, template, EncodingOptions("sft", 4096))
    template.apply_to_tokenizer(tokenizer)
    return template, tokenizer, kind, encoder


def answers_of(template, conversation):
    return [answer_text(template, text.content) for text in conversation.messages if text.role == "assistant"]


def test_the_marked_rendering_prints_what_the_saved_text_prints_and_marks_the_answers(prepared):
    template, tokenizer, _, _ = prepared
    assert template.method == "marks"
    for case, conversation in CASES.items():
        rows = template.render_segments(conversation)
        printed = "".join(segment.text for segment in rows[-1])
        assert printed == template.render_prompt(conversation.messages, add_generation_prompt=False), case
        assert printed == tokenizer.apply_chat_template(as_dicts(conversation), tokenize=False), case
        marked = [segment.text for row in rows for segment in row if segment.trained]
        assert marked == answers_of(template, conversation), case


def test_what_is_learnt_is_answers_and_end_markers_behind_the_prompt_that_serving_sends(prepared):
    template, tokenizer, kind, encoder = prepared
    encoded = encoder.encode([CASES[case] for case in ENCODED])
    for case, rows in zip(ENCODED, encoded, strict=True):
        learnt = [
            tokenizer.decode(row.input_ids[start:end], skip_special_tokens=False)
            for row in rows
            for start, end in row.trained_spans.reshape(-1, 2)
        ]
        answers = answers_of(template, CASES[case])
        if kind == "metaspace":  # its decoder drops a space at the start, and makes a space of its sign
            learnt = [text.lstrip(" ") for text in learnt]
            answers = [text.replace("▁", " ").lstrip(" ") for text in answers]
        assert learnt == answers, case
        messages = as_dicts(CASES[case])
        first = next(place for place, message in enumerate(messages) if message["role"] == "assistant")
        served = tokenizer.apply_chat_template(messages[:first], add_generation_prompt=True, return_dict=False)
        assert rows[0].input_ids[: rows[0].trained_spans[0]].tolist() == served, case
