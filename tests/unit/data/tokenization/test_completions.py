import pickle

import numpy as np
import pytest

from tests.tiny.runs import CHATML
from tests.tiny.tokenizers import byte_level_tokenizer, metaspace_tokenizer
from tunesmith.config.data import DataConfig
from tunesmith.data.chat import resolve_template
from tunesmith.data.records import Conversation, Document, Dropped, Feedback, Message, Preference
from tunesmith.data.tokenization import EncodingOptions, build_encoder

TOKENIZERS = {"bytes": byte_level_tokenizer(), "metaspace": metaspace_tokenizer()}


def template_of(name, tokenizer):
    return resolve_template(DataConfig(template=name), tokenizer)


def encoder_of(kind="bytes", template="chatml", *, cutoff_len=512, stage="dpo"):
    tokenizer = TOKENIZERS[kind]
    return build_encoder(tokenizer, template_of(template, tokenizer), EncodingOptions(stage, cutoff_len))


def user(text):
    return Message("user", text)


def answer(text):
    return Message("assistant", text)


def preference(chosen="It is 19.", rejected="I do not know.", question="What is 12 + 7?", **rest):
    return Preference((user(question),), (answer(chosen),), (answer(rejected),), **rest)


def encode(record, **options):
    result = encoder_of(**options).encode([record])[0]
    return result if isinstance(result, Dropped) else result[0]


def parts(row):
    """The ids of prompt, chosen and rejected."""
    return np.split(row.input_ids, [row.prompt_end, row.chosen_end])


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("template", ["chatml", "llama2"])
def test_each_side_is_what_fine_tuning_would_train_on(kind, template):
    """A pair is two conversations: prompt and answer have the ids that stage sft gives them."""
    row = encode(preference(), kind=kind, template=template)
    prompt, *completions = parts(row)
    options = EncodingOptions("sft", 512)
    plain = build_encoder(TOKENIZERS[kind], template_of(template, TOKENIZERS[kind]), options)
    for text, found in zip(("It is 19.", "I do not know."), completions, strict=True):
        (expected,) = plain.encode([Conversation((user("What is 12 + 7?"), answer(text)))])[0]
        first, end = expected.trained_spans
        assert prompt.tolist() == expected.input_ids[:first].tolist()
        assert found.tolist() == expected.input_ids[first:end].tolist()
    assert row.trained_spans.tolist() == [row.prompt_end, row.chosen_end, row.chosen_end, len(row.input_ids)]


def test_only_the_last_answer_is_a_completion():
    prompt = (user("Hello"), answer("Hello, world!"), user("What is 12 + 7?"))
    row = encode(Preference(prompt, (answer("19"),), (answer("12"),)))
    tokenizer = TOKENIZERS["bytes"]
    assert "Hello, world!<|im_end|>" in tokenizer.decode(parts(row)[0])
    assert [tokenizer.decode(part) for part in parts(row)[1:]] == ["19<|im_end|>", "12<|im_end|>"]


def test_a_completion_of_several_answers_learns_the_answers_alone():
    chosen = (answer("first"), user("and then?"), answer("second"))
    row = encode(Preference((user("Q"),), chosen, (answer("other"),)))
    tokenizer = TOKENIZERS["bytes"]
    spans = row.trained_spans.reshape(-1, 2)
    learnt = [tokenizer.decode(row.input_ids[first:end]) for first, end in spans]
    assert learnt == ["first<|im_end|>", "second<|im_end|>", "other<|im_end|>"]
    assert spans[0, 0] == row.prompt_end
    assert spans[1, 1] == row.chosen_end == spans[2, 0]
    assert "and then?" in tokenizer.decode(parts(row)[1])


def test_margins_and_verdicts_come_along():
    assert encode(preference(margin=1.5)).signal == 1.5
    for verdict in (True, False):
        row = encode(Feedback((user("Q"),), (answer("A"),), verdict), stage="kto")
        assert (row.signal, row.chosen_end) == (float(verdict), len(row.input_ids))
        assert row.trained_spans.tolist() == [row.prompt_end, row.chosen_end]


def test_pairs_that_are_the_same_are_dropped():
    assert encode(preference("yes", "yes")).reason == "chosen and rejected are the same"


def test_pairs_that_differ_only_in_what_is_cut_are_dropped():
    long = "Roses are red, violets are blue. " * 8
    dropped = encode(preference(long + "yes", long + "no"), cutoff_len=40)
    assert dropped.reason == "chosen and rejected are the same once cut to cutoff_len"


@pytest.mark.parametrize("cutoff_len", [24, 32, 40, 64, 90])
@pytest.mark.parametrize(
    ("prompt", "chosen", "rejected"), [(5, 40, 3), (60, 2, 3), (40, 30, 35), (200, 200, 1), (1, 90, 90)]
)
def test_both_sides_fit_and_keep_the_same_prompt_and_some_completion(cutoff_len, prompt, chosen, rejected):
    record = preference("a " * chosen, "1 " * rejected, "blue " * prompt)
    whole, row = encode(record, cutoff_len=100_000), encode(record, cutoff_len=cutoff_len)
    ends, completions = parts(row), parts(whole)[1:]
    fits = max(len(parts(whole)[0]) + len(completion) for completion in completions) <= cutoff_len
    assert (row.truncation == frozenset()) is fits
    for found, expected in zip(ends[1:], completions, strict=True):
        assert 1 <= len(found) <= cutoff_len - row.prompt_end
        assert found.tolist() == expected[: len(found)].tolist()
        if len(found) < len(expected):  # nothing is cut that there was room for
            assert len(found) == cutoff_len - row.prompt_end
            assert "end_marker_lost" in row.truncation
    assert ends[0][-3:].tolist() == parts(whole)[0][-3:].tolist()  # the header of the answer stays


def test_losing_the_end_marker_alone_is_not_losing_words():
    record = preference("a b c " * 40, "d")
    longest = encode(record).chosen_end
    assert encode(record, cutoff_len=longest).truncation == frozenset()
    assert encode(record, cutoff_len=longest - 1).truncation == {"end_marker_lost"}
    assert encode(record, cutoff_len=longest - 2).truncation == {"end_marker_lost", "answer_cut"}


def test_early_turns_go_first():
    prompt = (user("Hello " * 30), answer("Hello, world! " * 30), user("What is 12 + 7?"))
    row = encode(Preference(prompt, (answer("19"),), (answer("12 "),)), cutoff_len=40)
    assert row.truncation == {"turns_dropped"}
    assert "Hello" not in TOKENIZERS["bytes"].decode(row.input_ids)


def test_several_answers_are_cut_at_their_end():
    chosen = (answer("first"), user("and then?"), answer("second " * 20))
    record = Preference((user("Q"),), chosen, (answer("other"),))
    whole = encode(record)
    limit = whole.chosen_end - 10
    row = encode(record, cutoff_len=limit)
    assert row.input_ids[: row.chosen_end].tolist() == whole.input_ids[:limit].tolist()
    assert row.truncation == {"answer_cut", "end_marker_lost"}
    assert row.trained_spans.reshape(-1, 2)[1].tolist() == [whole.trained_spans[2], limit]
    into_the_first = encode(record, cutoff_len=int(whole.trained_spans[1]) - 1)
    assert into_the_first.trained_spans.reshape(-1, 2)[0].tolist() == [row.prompt_end, whole.trained_spans[1] - 1]


def test_what_does_not_fit_even_when_cut_is_dropped():
    assert encode(preference(), template="chatml", cutoff_len=8).reason == "longer than cutoff_len even when cut"
    several = Preference((user("long " * 50),), (answer("a"), user("b"), answer("c")), (answer("d"),), tools=None)
    assert encode(several, cutoff_len=20).reason == "longer than cutoff_len even when cut"


def test_templates_that_print_no_prompt_are_no_use():
    tokenizer = byte_level_tokenizer(
        chat_template="{% for m in messages %}{% if m['role'] == 'assistant' %}{% generation %}"
        "{{ m['content'] + '<|im_end|>' }}{% endgeneration %}{% endif %}{% endfor %}"
    )
    encoder = build_encoder(tokenizer, template_of("auto", tokenizer), EncodingOptions("dpo", 64))
    assert encoder.encode([preference()])[0].reason == "the prompt is empty"


def test_answers_that_must_not_be_learnt_leave_nothing():
    record = Preference((user("Q"),), (Message("assistant", "A", trained=False),), (answer("B"),))
    assert encode(record).reason == "no completion to learn from"


def test_other_records_are_a_mistake_of_the_caller():
    with pytest.raises(TypeError, match="without completions"):
        encoder_of().encode([Document("text")])


def test_records_are_encoded_in_order_and_encoders_can_travel():
    records = [preference(str(n), "x") for n in range(5)] + [preference("x", "x")] + [preference("last", "x")]
    encoder = pickle.loads(pickle.dumps(encoder_of()))
    rows = encoder.encode(records)
    tokenizer = TOKENIZERS["bytes"]
    texts = [row.reason if isinstance(row, Dropped) else tokenizer.decode(parts(row[0])[1]) for row in rows]
    assert texts == [*(f"{n}<|im_end|>" for n in range(5)), "chosen and rejected are the same", "last<|im_end|>"]


def encode_with(chat_template, record):
    tokenizer = byte_level_tokenizer(chat_template=chat_template)
    encoder = build_encoder(tokenizer, template_of("auto", tokenizer), EncodingOptions("dpo", 512))
    return encoder.encode([record])[0]


def test_what_a_template_cannot_print_is_dropped_with_its_reason():
    assert encode_with(CHATML, preference(tools='[{"name": "f"}]')).reason == "the chat template cannot print tools"


def test_a_prompt_that_depends_on_the_completion_is_no_prompt():
    peeking = "{% if messages[-1]['content']|length > 30 %}Long:{% endif %}" + CHATML
    dropped = encode_with(peeking, preference(rejected="I do not know. " * 9))
    assert dropped.reason == "the prompt looks different before each completion"


def test_several_answers_need_a_template_that_prints_them_alike():
    printed = "message['content'] + '<|im_end|>' }}{% endgeneration"
    forgetful = CHATML.replace(printed, "(message['content'] if loop.last else '') + '<|im_end|>' }}{% endgeneration")
    several = Preference((user("Q"),), (answer("first"), user("and?"), answer("second")), (answer("other"),))
    assert encode_with(forgetful, several).reason == (
        "a completion of several answers, which the chat template prints one by one"
    )
    assert encode_with(forgetful, preference())[0].prompt_end > 0
