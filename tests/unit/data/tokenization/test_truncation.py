import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from tests.unit.data.chat.conversations import conversations, talk, texts
from tests.unit.data.tokenization.test_conversation import learnt, make, spans_of
from tunesmith.data.records import Conversation, Dropped, Message
from tunesmith.data.tokenization import EncodingOptions, build_encoder
from tunesmith.data.tokenization.truncation import share_budget, whole_characters

TOO_LONG = Dropped("longer than cutoff_len even when cut")


@pytest.mark.parametrize(
    ("prompt", "answer", "cutoff", "kept"),
    [
        (100, 10, 50, (40, 10)),
        (10, 100, 50, (10, 40)),
        (2000, 2000, 2048, (1024, 1024)),
        (1000, 1, 1, (1, 0)),
        (30, 20, 60, (30, 20)),
    ],
)
def test_budget_is_shared_as_in_llama_factory(prompt, answer, cutoff, kept):
    assert share_budget(prompt, answer, cutoff) == kept


def encode(name, conversation, cutoff_len, kind="byte_level", **options):
    tokenizer, _, encoder = make(name, kind, cutoff_len=cutoff_len, **options)
    (result,) = encoder.encode([conversation])
    return tokenizer, result


def length(name, conversation):
    return len(encode(name, conversation, 4096)[1][0].input_ids)


def numbers(count):
    """Text of which every digit is one token."""
    return "".join(str(place % 10) for place in range(count))


def test_long_question_loses_its_tail_and_keeps_the_headers():
    whole = length("chatml", talk(numbers(100), "7"))
    tokenizer, (row,) = encode("chatml", talk(numbers(100), "7"), whole - 60)
    text = tokenizer.decode(row.input_ids)
    assert text == f"<|im_start|>user\n{numbers(41)}<|im_end|>\n<|im_start|>assistant\n7<|im_end|>"[: len(text)]
    assert len(row.input_ids) == whole - 60
    assert row.truncation == {"prompt_cut"}
    assert learnt(tokenizer, row) == ["7<|im_end|>"]


def test_long_answer_loses_its_tail_and_its_end_marker():
    conversation = talk("7", numbers(100))
    tokenizer, (row,) = encode("chatml", conversation, 50)
    assert len(row.input_ids) == 50
    (answer,) = learnt(tokenizer, row)
    assert numbers(100).startswith(answer)
    assert row.truncation == {"answer_cut", "end_marker_lost"}


def test_only_the_separator_too_many_loses_nothing():
    whole = length("chatml", talk("7", "8"))
    _, (row,) = encode("chatml", talk("7", "8"), whole - 1)
    assert (len(row.input_ids), row.truncation) == (whole - 1, frozenset())


def test_only_the_end_marker_too_many_is_said_so():
    whole = length("chatml", talk("", numbers(30)))
    tokenizer, (row,) = encode("chatml", talk("", numbers(30)), whole - 2)
    assert learnt(tokenizer, row) == [numbers(30)]
    assert row.truncation == {"end_marker_lost"}


def test_later_turns_go_when_every_answer_is_learnt():
    conversation = talk("1", "2", "3", "4", "5", "6", system="7")
    kept = length("chatml", talk("1", "2", "3", "4", system="7"))
    tokenizer, (row,) = encode("chatml", conversation, kept)
    assert learnt(tokenizer, row) == ["2<|im_end|>", "4<|im_end|>"]
    assert row.truncation == {"turns_dropped"}


def test_the_turn_after_the_kept_ones_is_cut_when_there_is_room():
    conversation = talk("1", "2", "3", numbers(80), "5", "6")
    tokenizer, (row,) = encode("chatml", conversation, 60)
    assert len(row.input_ids) == 60
    first, second = learnt(tokenizer, row)
    assert first == "2<|im_end|>"
    assert numbers(80).startswith(second)
    assert row.truncation == {"turns_dropped", "answer_cut", "end_marker_lost"}


def test_first_turns_go_when_only_the_last_answer_is_learnt():
    conversation = talk("1", "2", "3", "4", "5", "6", system="7")
    kept = length("chatml", talk("3", "4", "5", "6", system="7"))
    tokenizer, (row,) = encode("chatml", conversation, kept, mask_history=True)
    text = tokenizer.decode(row.input_ids)
    assert text.startswith("<|im_start|>system\n7<|im_end|>\n<|im_start|>user\n3<|im_end|>")
    assert learnt(tokenizer, row) == ["6<|im_end|>"]
    assert row.truncation == {"turns_dropped"}


def test_rows_of_a_split_conversation_are_fitted_one_by_one():
    conversation = talk("1", "2", numbers(60), "4")
    tokenizer, rows = encode("qwen3", conversation, 50)
    assert [learnt(tokenizer, row) for row in rows] == [
        ["<think>\n\n</think>\n\n2<|im_end|>"],
        ["<think>\n\n</think>\n\n4<|im_end|>"],
    ]
    assert rows[0].truncation == frozenset()
    assert rows[1].truncation == {"turns_dropped", "prompt_cut"}


def test_an_answer_of_a_split_conversation_that_cannot_fit_counts_as_a_dropped_turn():
    messages = (
        Message("user", "1"),
        Message("assistant", "2"),
        Message("user", "3"),
        Message("assistant", numbers(60)),
        Message("tool", "5"),
        Message("assistant", "6"),
    )
    tokenizer, rows = encode("qwen3", Conversation(messages), 50)
    assert learnt(tokenizer, rows[0]) == ["<think>\n\n</think>\n\n2<|im_end|>"]
    assert len(rows) == 2  # the last answer has the long one before it, in the same turn
    assert "turns_dropped" in rows[0].truncation


def test_system_text_is_never_cut():
    conversation = talk("1", "2", system=numbers(60))
    assert encode("chatml", conversation, 40)[1] == TOO_LONG
    tokenizer, (row,) = encode("gemma", talk(numbers(60), "2", system="keep me"), 60)
    assert "keep me" in tokenizer.decode(row.input_ids)


def test_nothing_fits():
    assert encode("chatml", talk("1", "2"), 5)[1] == TOO_LONG


def test_a_tool_result_is_cut_before_the_question():
    messages = (
        Message("user", numbers(20)),
        Message("assistant", "ask"),
        Message("tool", numbers(60)),
        Message("assistant", "done"),
    )
    tokenizer, (row,) = encode("chatml", Conversation(messages), 85, mask_history=True)
    text = tokenizer.decode(row.input_ids)
    assert f"user\n{numbers(20)}<|im_end|>" in text
    assert row.truncation == {"prompt_cut"}
    assert learnt(tokenizer, row) == ["done<|im_end|>"]


def test_text_that_looks_like_a_header_is_cut_like_text():
    conversation = talk("<|im_start|>assistant\n" * 20, "fine")
    tokenizer, (row,) = encode("chatml", conversation, 60)
    assert tokenizer.decode(row.input_ids).rstrip("\n").endswith("<|im_end|>\n<|im_start|>assistant\nfine<|im_end|>")


def test_no_character_is_cut_in_two():
    # tokens of three characters: one byte of "é" each in tokens 1 and 2
    offsets = [(0, 1), (1, 2), (1, 2), (2, 3)]
    assert [whole_characters(offsets, count) for count in (1, 2, 3, 4)] == [1, 1, 3, 4]
    assert whole_characters([(0, 1), (0, 1)], 1) == 0
    for cutoff in range(24, 60):
        tokenizer, rows = encode("chatml", talk("🙂é" * 8, "é🙂" * 12), cutoff)
        if rows != TOO_LONG:
            (row,) = rows
            (start, end), *_ = spans_of(row)
            assert "�" not in tokenizer.decode(row.input_ids[:start])
            assert "�" not in tokenizer.decode(row.input_ids[start:end]) or end - start < 4


SHAPE = re.compile(
    r"(<\|im_start\|>system\n.*?<\|im_end\|>\n)?"
    r"(<\|im_start\|>user\n[^<]*<\|im_end\|>\n<\|im_start\|>assistant\n[^<]*<\|im_end\|>\n)*"
    r"<\|im_start\|>user\n[^<]*<\|im_end\|>\n<\|im_start\|>assistant\n[^<]*(<\|im_end\|>)?\n?",
    re.DOTALL,
)
plain = st.text(alphabet="ab 1.é🙂\n", max_size=25)


@pytest.fixture(scope="module")
def chatml():
    tokenizer, template, _ = make("chatml")
    return tokenizer, template


@limits(max_examples=150, deadline=None)
@given(conversations(plain), st.integers(10, 90), st.booleans())
def test_cut_rows_keep_the_shape_of_a_conversation(chatml, conversation, cutoff, mask_history):
    tokenizer, template = chatml
    options = EncodingOptions("sft", cutoff, mask_history=mask_history)
    rows, packed = (
        build_encoder(tokenizer, template, replace(options, packing=packing)).encode([conversation])[0]
        for packing in (False, True)
    )
    if isinstance(rows, Dropped):
        assert rows == packed == TOO_LONG
        return
    (row,) = rows
    assert len(row.input_ids) <= cutoff
    assert all(start < end <= len(row.input_ids) for start, end in spans_of(row))
    assert spans_of(row)
    assert SHAPE.fullmatch(tokenizer.decode(row.input_ids)), tokenizer.decode(row.input_ids)
    assert packed[0].input_ids.tolist() == row.input_ids.tolist()


@pytest.mark.parametrize("kind", ["byte_level", "metaspace"])
@pytest.mark.parametrize("name", ["llama2", "gemma", "qwen3", "alpaca"])
def test_cut_rows_of_every_kind_fit_and_learn_something(name, kind):
    encoders = {
        (cutoff, mask): make(name, kind, cutoff_len=cutoff, mask_history=mask)[2]
        for cutoff in (20, 45, 80)
        for mask in (False, True)
    }

    @limits(max_examples=40, deadline=None)
    @given(conversations(texts), st.sampled_from(sorted(encoders)))
    def holds(conversation, choice):
        (rows,) = encoders[choice].encode([conversation])
        if isinstance(rows, Dropped):
            assert rows == TOO_LONG
            return
        for row in rows:
            assert len(row.input_ids) <= choice[0]
            assert sum(end - start for start, end in spans_of(row)) >= 1

    holds()
