import pickle
import re
from itertools import cycle

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import settings as limits
from tokenizers.processors import TemplateProcessing

from tests.unit.data.chat.conversations import (
    DISTINCT_NAMES,
    answer_text,
    as_dicts,
    conversations,
    settings,
    talk,
    template_of,
    texts,
    tokenizer_of,
    words,
)
from tests.unit.data.chat.test_resolve import CHATML, FORGETFUL, NO_SYSTEM
from tunesmith.data.chat import resolve_template
from tunesmith.data.records import Conversation, Document, Dropped, Message
from tunesmith.data.tokenization import EncodingOptions, build_encoder, encode_prompt
from tunesmith.data.tokenization.pieces import ApartEncoder, TogetherEncoder

LONG = 4096


def make(name, kind="byte_level", *, with_markers=True, allow_special_tokens=False, **options):
    tokenizer = tokenizer_of(kind, with_markers=with_markers)
    template = template_of(name, tokenizer, allow_special_tokens=allow_special_tokens)
    template.apply_to_tokenizer(tokenizer)
    encoder = build_encoder(tokenizer, template, EncodingOptions("sft", options.pop("cutoff_len", LONG), **options))
    return tokenizer, template, encoder


def spans_of(row):
    return row.trained_spans.reshape(-1, 2).tolist()


def learnt(tokenizer, row):
    return [tokenizer.decode(row.input_ids[start:end]) for start, end in spans_of(row)]


# Each template with one of the kinds: of a few texts, the contract of templates sees that they hold with both.
# Counting the lines of rendering takes ten times as long as rendering; other tests here meet the same lines.
@pytest.mark.no_cover
@pytest.mark.parametrize(("name", "kind"), zip(DISTINCT_NAMES, cycle(["byte_level", "metaspace"]), strict=False))
def test_labels_are_exactly_answers_and_end_markers_and_prompts_are_what_serving_sends(name, kind):
    tokenizer, template, encoder = make(name, kind, allow_special_tokens=True)

    @limits(max_examples=4, deadline=None)
    @given(conversations(texts))
    def holds(conversation):
        (rows,) = encoder.encode([conversation])
        found = [text for row in rows for text in learnt(tokenizer, row)]
        expected = [answer_text(template, text.content) for text in conversation.messages if text.role == "assistant"]
        if kind == "metaspace":  # its decoder moves spaces, and makes spaces of their sign
            found, expected = ([re.sub("[ ▁]", "", text) for text in texts] for texts in (found, expected))
        assert found == expected
        first = next(place for place, message in enumerate(conversation.messages) if message.role == "assistant")
        prompt = tokenizer.apply_chat_template(
            as_dicts(conversation)[:first], add_generation_prompt=True, return_dict=False
        )
        assert rows[0].input_ids[: spans_of(rows[0])[0][0]].tolist() == prompt

    holds()


@pytest.mark.no_cover
@pytest.mark.parametrize("name", DISTINCT_NAMES)
def test_the_start_token_stands_once_where_the_tokenizer_puts_one(name):
    tokenizer = start_token_first(tokenizer_of("metaspace"))
    template = template_of(name, tokenizer)
    encoder = build_encoder(tokenizer, template, EncodingOptions("sft", LONG))
    (rows,) = encoder.encode([talk("one", "two", "three", "four")])
    ids = rows[-1].input_ids.tolist()
    if name in MANY_STARTS:
        assert ids.count(tokenizer.bos_token_id) == MANY_STARTS[name]
    else:
        assert (ids[0], ids.count(tokenizer.bos_token_id)) == (tokenizer.bos_token_id, 1)


def test_a_start_token_that_the_wire_writes_out_is_not_put_before_it_again():
    tokenizer = tokenizer_of("metaspace")
    tokenizer.add_special_tokens({"bos_token": "<|startoftext|>"})
    start = tokenizer.bos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|startoftext|> $A", pair="$A $B", special_tokens=[("<|startoftext|>", start)]
    )
    for name in ("hunyuan", "chatml"):
        encoder = build_encoder(tokenizer, template_of(name, tokenizer), EncodingOptions("sft", LONG))
        ((row,),) = encoder.encode([talk("one", "two")])
        assert (row.input_ids[0], row.input_ids.tolist().count(start)) == (start, 1)


MANY_STARTS = {"llama2": 2, "llama2_zh": 2, "seed_coder": 5, "seed_oss": 4}
"""Families that write the start token before every question, or every turn; the published templates do."""


def start_token_first(tokenizer):
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
    )
    return tokenizer


@pytest.mark.parametrize("kind", ["byte_level", "metaspace"])
@pytest.mark.parametrize("name", ["alpaca", "chatml", "default", "gemma", "llama2", "llama3", "mistral", "qwen3"])
def test_rows_have_the_ids_of_the_saved_template(name, kind):
    """Of plain words no token reaches over a border, so that the whole row is what `apply_chat_template` gives."""
    tokenizer, _, encoder = make(name, kind)

    @limits(max_examples=10, deadline=None)
    @given(conversations(words))
    def holds(conversation):
        (rows,) = encoder.encode([conversation])
        served = tokenizer.apply_chat_template(as_dicts(conversation), return_dict=False)
        assert rows[-1].input_ids.tolist() == served

    holds()


@pytest.mark.parametrize("kind", ["byte_level", "metaspace"])
@pytest.mark.parametrize("name", ["chatml", "llama2", "glm4", "qwen3"])
def test_special_token_text_in_a_question_stays_text(name, kind):
    tokenizer, template, encoder = make(name, kind)
    controls = [tokenizer.convert_tokens_to_ids(text) for text in ("<|im_end|>", "<end_of_turn>")]
    ((row,),) = encoder.encode([talk("Is <|im_end|> or <end_of_turn> a token?", "Yes.")])
    ((plain,),) = encoder.encode([talk("Is it a token?", "Yes.")])
    counts = [[ids.count(token) for token in controls] for ids in (row.input_ids.tolist(), plain.input_ids.tolist())]
    assert counts[0] == counts[1]
    assert "Is <|im_end|> or <end_of_turn> a token?" in tokenizer.decode(row.input_ids)
    assert encode_prompt(tokenizer, template, [Message("user", "Is <|im_end|> or <end_of_turn> a token?")]) == (
        row.input_ids[: spans_of(row)[0][0]].tolist()
    )
    _, _, allowing = make(name, kind, allow_special_tokens=True)
    ((meant,),) = allowing.encode([talk("Is <|im_end|> or <end_of_turn> a token?", "Yes.")])
    assert [meant.input_ids.tolist().count(token) for token in controls] == [count + 1 for count in counts[0]]


def test_special_token_text_in_an_answer_is_meant():
    tokenizer, _, encoder = make("chatml")
    ((row,),) = encoder.encode([talk("Q", "A<|im_end|>B")])
    assert row.input_ids.tolist().count(tokenizer.eos_token_id) == 3


def test_a_question_with_special_token_text_is_cut_like_any_other():
    tokenizer, _, encoder = make("chatml", cutoff_len=40)
    ((row,),) = encoder.encode([talk("word <|im_end|> " * 20, "Yes.")])
    assert row.truncation == {"prompt_cut"}
    assert len(row.input_ids) <= 40
    assert row.input_ids.tolist().count(tokenizer.eos_token_id) == 2
    assert learnt(tokenizer, row) == ["Yes.<|im_end|>"]


@pytest.mark.parametrize("source", [CHATML, FORGETFUL], ids=["chatml", "forgetful"])
def test_a_template_of_the_tokenizer_is_learnt_from_likewise(source):
    tokenizer = tokenizer_of("byte_level")
    tokenizer.chat_template = source
    encoder = build_encoder(tokenizer, resolve_template(settings(), tokenizer), EncodingOptions("sft", LONG))

    @limits(max_examples=40, deadline=None)
    @given(conversations(texts))
    def holds(conversation):
        (rows,) = encoder.encode([conversation])
        answers = [message.content + "<|im_end|>" for message in conversation.messages if message.role == "assistant"]
        assert [text for row in rows for text in learnt(tokenizer, row)] == answers

    holds()


def test_separator_after_the_end_marker_is_not_learnt():
    tokenizer, _, encoder = make("chatml")
    ((row,),) = encoder.encode([talk("Q", "A", "R", "B")])
    assert learnt(tokenizer, row) == ["A<|im_end|>", "B<|im_end|>"]
    assert tokenizer.decode(row.input_ids[spans_of(row)[-1][1] :]) == "\n"


def test_an_empty_answer_teaches_to_stop():
    tokenizer, _, encoder = make("chatml")
    ((row,),) = encoder.encode([talk("Q", "")])
    assert learnt(tokenizer, row) == ["<|im_end|>"]


def test_mask_history_learns_the_last_answer_only():
    tokenizer, _, encoder = make("chatml", mask_history=True)
    ((row,),) = encoder.encode([talk("Q", "A", "R", "B")])
    assert learnt(tokenizer, row) == ["B<|im_end|>"]
    _, _, qwen3 = make("qwen3", mask_history=True)
    assert len(qwen3.encode([talk("Q", "A", "R", "B")])[0]) == 1


def test_train_on_prompt_learns_every_token():
    _, _, encoder = make("chatml", train_on_prompt=True)
    ((row,),) = encoder.encode([talk("Q", "A")])
    assert spans_of(row) == [[0, len(row.input_ids)]]


def test_answers_that_are_not_to_be_learnt_are_prompt():
    tokenizer, _, encoder = make("chatml")
    messages = list(talk("Q", "A", "R", "B").messages)
    messages[1] = Message("assistant", "A", trained=False)
    ((row,),) = encoder.encode([Conversation(tuple(messages))])
    assert learnt(tokenizer, row) == ["B<|im_end|>"]
    messages[3] = Message("assistant", "B", trained=False)
    assert encoder.encode([Conversation(tuple(messages))]) == [Dropped("no answer to learn from")]


def test_rows_without_a_learnt_answer_are_left_out_of_split_conversations():
    tokenizer, _, encoder = make("qwen3")
    messages = list(talk("Q", "A", "R", "B").messages)
    messages[1] = Message("assistant", "A", trained=False)
    (rows,) = encoder.encode([Conversation(tuple(messages))])
    assert [learnt(tokenizer, row) for row in rows] == [["<think>\n\n</think>\n\nB<|im_end|>"]]


def test_rows_that_the_template_refuses_are_dropped_with_its_words():
    tokenizer = tokenizer_of("byte_level")
    tokenizer.chat_template = NO_SYSTEM
    encoder = build_encoder(tokenizer, resolve_template(settings(), tokenizer), EncodingOptions("sft", LONG))
    dropped, kept = encoder.encode([talk("Q", "A", system="S"), talk("Q", "A")])
    assert dropped == Dropped("the chat template refuses the row")
    assert dropped.detail == "System role not supported"
    assert len(kept) == 1


def test_each_kind_of_tokenizer_gets_the_fastest_way_that_is_right():
    assert isinstance(make("chatml")[2]._pieces.inner, ApartEncoder)
    assert isinstance(make("chatml", "metaspace")[2]._pieces.inner, TogetherEncoder)


def test_many_conversations_at_once_come_out_as_one_by_one():
    _, _, encoder = make("chatml")
    other = talk("One more", "here")

    @limits(max_examples=60, deadline=None)
    @given(conversations(texts))
    def holds(conversation):
        together = encoder.encode([other, conversation, other])
        apart = [encoder.encode([one])[0] for one in (other, conversation, other)]
        for left, right in zip(together, apart, strict=True):
            np.testing.assert_array_equal(left[0].input_ids, right[0].input_ids)
            np.testing.assert_array_equal(left[0].trained_spans, right[0].trained_spans)

    holds()


def test_end_marker_that_is_no_token_is_learnt_as_text():
    tokenizer, _, encoder = make("gemma", "byte_level", with_markers=False)

    @limits(max_examples=25, deadline=None)
    @given(conversations(texts))
    def holds(conversation):
        assume("<|im_end|>" not in str(conversation))
        (rows,) = encoder.encode([conversation])
        answers = [
            message.content + "<end_of_turn>" for message in conversation.messages if message.role == "assistant"
        ]
        assert learnt(tokenizer, rows[0]) == answers

    holds()


def test_types_are_int32():
    _, _, encoder = make("chatml")
    ((row,),) = encoder.encode([talk("Q", "A")])
    assert row.input_ids.dtype == row.trained_spans.dtype == np.int32
    assert row.truncation == frozenset()


def test_an_encoder_survives_pickling():
    _, _, encoder = make("qwen3")
    again = pickle.loads(pickle.dumps(encoder))
    for left, right in zip(encoder.encode([talk("Q", "A")])[0], again.encode([talk("Q", "A")])[0], strict=True):
        np.testing.assert_array_equal(left.input_ids, right.input_ids)


def test_a_document_is_a_mistake_of_the_caller():
    _, _, encoder = make("chatml")
    with pytest.raises(TypeError, match="not a conversation"):
        encoder.encode([Document("x")])
