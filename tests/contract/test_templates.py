"""Every template of the catalogue, on both kinds of tokenizer: what is printed, and what is learnt of it."""

import pytest

from tests.unit.data.chat.conversations import KINDS, NAMES, as_dicts, talk, template_of, tokenizer_of
from tunesmith.data.tokenization import EncodingOptions, build_encoder

CASES = {
    "one turn": talk("Hi", "Hello."),
    "system and two turns": talk("What is 1 + 1?", "2", "你好", "好的 🙂", system="Be brief."),
    "markers in a question": talk("What does <|im_end|> or </s> mean?", "An end."),
    "lines": talk("Write\n\ntwo lines", "first\n\n  second\n- third"),
}


@pytest.fixture(scope="module", params=sorted(KINDS))
def kind(request):
    return request.param


@pytest.fixture(params=sorted(CASES))
def conversation(request):
    return CASES[request.param]


@pytest.mark.parametrize("name", NAMES)
def test_the_marked_rendering_prints_what_the_saved_text_prints(name, kind, conversation):
    tokenizer = tokenizer_of(kind)
    template = template_of(name, tokenizer)
    assert template.method == "marks"
    template.apply_to_tokenizer(tokenizer)
    marked = "".join(segment.text for segment in template.render_segments(conversation)[-1])
    assert marked == template.render_prompt(conversation.messages, add_generation_prompt=False)
    assert marked == tokenizer.apply_chat_template(as_dicts(conversation), tokenize=False)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_learnt_reads_back_as_the_answers_and_their_end_marker(name, kind, conversation):
    tokenizer = tokenizer_of(kind)
    template = template_of(name, tokenizer)
    (rows,) = build_encoder(tokenizer, template, EncodingOptions("sft", 4096)).encode([conversation])
    learnt = [
        tokenizer.decode(row.input_ids[start:end], skip_special_tokens=False)
        for row in rows
        for start, end in row.trained_spans.reshape(-1, 2)
    ]
    answers = [message.content for message in conversation.messages if message.role == "assistant"]
    # Qwen3 serves an answer without reasoning behind an empty one, and the space before an answer is the template's.
    bare = [text.replace("<think>\n\n</think>\n\n", "").removeprefix(" ") for text in learnt]
    assert bare == [answer + template.end_markers[0] for answer in answers]


@pytest.mark.parametrize("name", NAMES)
def test_ids_before_the_first_answer_are_those_that_serving_sends(name, kind, conversation):
    tokenizer = tokenizer_of(kind)
    template = template_of(name, tokenizer)
    (rows,) = build_encoder(tokenizer, template, EncodingOptions("sft", 4096)).encode([conversation])
    template.apply_to_tokenizer(tokenizer)
    messages = as_dicts(conversation)
    first = next(place for place, message in enumerate(messages) if message["role"] == "assistant")
    served = tokenizer.apply_chat_template(messages[:first], add_generation_prompt=True, return_dict=False)
    assert rows[0].input_ids[: rows[0].trained_spans[0]].tolist() == served
