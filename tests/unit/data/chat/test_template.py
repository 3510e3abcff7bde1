import pickle

import pytest
from hypothesis import given
from hypothesis import settings as limits
from transformers import AutoTokenizer

from tests.unit.data.chat.conversations import (
    DISTINCT_NAMES,
    as_dicts,
    conversations,
    settings,
    shared_tokenizer,
    talk,
    template_of,
    texts,
    tokenizer_of,
)
from tunesmith.data.chat import RenderingRefusedError, resolve_template
from tunesmith.data.records import Conversation, Message, ToolCall

TOOLS = '[{"name": "weather", "parameters": {"type": "object", "properties": {}}}]'


def asked_with_tools() -> Conversation:
    return Conversation(
        (
            Message("user", "Rain?"),
            Message("assistant", "", (ToolCall("weather", '{"city": "Köln"}'),)),
            Message("tool", '{"rain": true}'),
            Message("assistant", "Yes."),
        ),
        TOOLS,
    )


@pytest.mark.parametrize("kind", ["byte_level", "metaspace"])
@pytest.mark.parametrize("name", ["deepseekcoder", "gemma", "glm4", "glm4_7", "gpt_oss", "llama2", "mistral", "qwen3"])
def test_rendering_is_what_the_saved_template_prints(name, kind):
    tokenizer = tokenizer_of(kind)
    template = template_of(name, tokenizer, allow_special_tokens=True)
    template.apply_to_tokenizer(tokenizer)

    @limits(max_examples=6, deadline=None)
    @given(conversations(texts))
    def holds(conversation):
        row = template.render_segments(conversation)[-1]
        served = tokenizer.apply_chat_template(as_dicts(conversation), tokenize=False)
        assert "".join(segment.text for segment in row) == served
        prompt = tokenizer.apply_chat_template(as_dicts(conversation)[:-1], tokenize=False, add_generation_prompt=True)
        assert template.render_prompt(conversation.messages[:-1]) == prompt
        assert served.startswith(prompt)

    holds()


def test_message_index_names_the_answer():
    template = template_of("chatml", tokenizer_of("byte_level"))
    (row,) = template.render_segments(talk("Q", "A", "R", "B", system="S"))
    assert [(segment.message_index, segment.trained) for segment in row] == [
        (2, False),
        (2, True),
        (4, False),
        (4, True),
        (4, False),
    ]


def test_a_template_that_drops_earlier_reasoning_gets_one_row_per_answer():
    template = template_of("qwen3", tokenizer_of("byte_level"))
    rows = template.render_segments(talk("Q", "<think>\nhm\n</think>\n\nA", "R", "B"))
    assert [["".join(s.text for s in row if s.trained)] for row in rows] == [
        ["<think>\nhm\n</think>\n\nA<|im_end|>"],
        ["<think>\n\n</think>\n\nB<|im_end|>"],
    ]
    assert "hm" not in "".join(segment.text for segment in rows[1])
    only = template.render_segments(talk("Q", "<think>\nhm\n</think>\n\nA", "R", "B"), only_last=True)
    assert only == rows[1:]


def test_prompts_take_messages_as_dicts_too():
    template = template_of("chatml", tokenizer_of("byte_level"))
    message = {"role": "user", "content": "Hi", "name": None}
    assert template.render_prompt([message]) == template.render_prompt([Message("user", "Hi")])


def test_default_system_is_part_of_the_saved_template():
    tokenizer = tokenizer_of("byte_level")
    template = template_of("chatml", tokenizer, 'Say "hi"\nin 中文 🙂 {{ x }} {% y %}')
    template.apply_to_tokenizer(tokenizer)
    text = tokenizer.apply_chat_template([{"role": "user", "content": "Q"}], tokenize=False)
    assert text.startswith('<|im_start|>system\nSay "hi"\nin 中文 🙂 {{ x }} {% y %}<|im_end|>\n<|im_start|>user\nQ')
    assert "中文" not in template.render_prompt(talk("Q", system="Mine").messages)


def test_empty_default_system_switches_the_template_s_own_off():
    template = template_of("qwen", tokenizer_of("byte_level"), "")
    assert template.render_prompt(talk("Q").messages).startswith("<|im_start|>user\nQ")


@pytest.mark.parametrize("name", ["qwen", "qwen3"])
def test_tool_use_is_printed_where_the_template_can(name):
    template = template_of(name, tokenizer_of("byte_level"))
    rows = template.render_segments(asked_with_tools())
    text = "".join(segment.text for segment in rows[-1])
    assert '{"type": "function", "function": {"name": "weather"' in text
    assert '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call><|im_end|>' in text
    assert '<|im_start|>user\n<tool_response>\n{"rain": true}\n</tool_response><|im_end|>' in text


@pytest.mark.parametrize("name", DISTINCT_NAMES)
def test_every_template_of_ours_prints_tools_calls_and_results(name):
    template = template_of(name, shared_tokenizer("byte_level"))
    text = "".join(segment.text for segment in template.render_segments(asked_with_tools())[-1])
    assert text.count("weather") >= 2
    assert '{"rain": true}' in text
    assert "Köln" in text


def test_tool_use_that_a_template_cannot_print_is_refused():
    tokenizer = tokenizer_of("byte_level")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }}:{{ m['content'] }}<|im_end|>{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    template = resolve_template(settings("auto"), tokenizer)
    with pytest.raises(RenderingRefusedError, match="cannot print tools"):
        template.render_segments(asked_with_tools())
    with pytest.raises(RenderingRefusedError, match="cannot print tool calls"):
        template.render_segments(Conversation(asked_with_tools().messages))


def test_arguments_that_are_not_json_are_refused():
    template = template_of("qwen", tokenizer_of("byte_level"))
    broken = Conversation((Message("user", "Q"), Message("assistant", "", (ToolCall("f", "{oops"),))))
    with pytest.raises(RenderingRefusedError, match="tool call arguments are not JSON: f"):
        template.render_segments(broken)


def test_end_token_becomes_the_end_marker_only_where_it_is_one_token(caplog):
    tokenizer = tokenizer_of("metaspace")
    template_of("gemma", tokenizer).apply_to_tokenizer(tokenizer)
    assert tokenizer.eos_token == "<end_of_turn>"
    bare = tokenizer_of("metaspace", with_markers=False)
    template_of("gemma", bare).apply_to_tokenizer(bare)
    assert bare.eos_token == "</s>"
    assert "not one token" in caplog.text


def test_generation_stops_at_the_marker_and_at_the_end_token():
    assert template_of("gemma", tokenizer_of("metaspace", with_markers=False)).end_markers == ("<end_of_turn>", "</s>")
    assert template_of("glm4", tokenizer_of("metaspace")).end_markers == ("</s>", "<|user|>", "<|observation|>")
    assert template_of("vicuna", tokenizer_of("metaspace")).end_markers == ("</s>",)


def test_fingerprint_follows_everything_that_is_printed():
    byte_level, metaspace = tokenizer_of("byte_level"), tokenizer_of("metaspace")
    prints = {
        template_of("chatml", byte_level).fingerprint,
        template_of("chatml", byte_level, "S").fingerprint,
        template_of("chatml", metaspace).fingerprint,
        template_of("vicuna", metaspace).fingerprint,
    }
    assert len(prints) == 4
    assert template_of("chatml", byte_level).fingerprint in prints


def test_a_template_survives_pickling():
    template = template_of("qwen3", tokenizer_of("byte_level"))
    template.render_prompt(talk("Q").messages)
    assert pickle.loads(pickle.dumps(template)) == template


@pytest.fixture(scope="module")
def qwen3(assets):
    return AutoTokenizer.from_pretrained(assets / "tokenizers" / "qwen3")


@pytest.fixture(scope="module")
def smollm2(smollm2_file):
    from tunesmith.models.gguf.metadata import read_metadata
    from tunesmith.models.gguf.tokenizer import build_tokenizer

    return build_tokenizer(read_metadata(smollm2_file))


@pytest.fixture(scope="module", params=["qwen3", pytest.param("smollm2", marks=pytest.mark.slow)])
def published(request):
    """A published tokenizer whose template has a twin."""
    tokenizer = request.getfixturevalue(request.param)
    template = resolve_template(settings("auto", allow_special_tokens=True), tokenizer)
    assert template.method == "marks", "the twin was not recognised"
    return tokenizer, template


@limits(max_examples=60, deadline=None)
@given(conversations(texts))
def test_twin_of_a_published_template_prints_the_same(published, conversation):
    tokenizer, template = published
    rows = template.render_segments(conversation)
    served = tokenizer.apply_chat_template(as_dicts(conversation), tokenize=False)
    assert "".join(segment.text for segment in rows[-1]) == served
    answers = [place for place, message in enumerate(conversation.messages) if message.role == "assistant"]
    for row, place in zip(rows, answers[-len(rows) :], strict=True):
        prompt = tokenizer.apply_chat_template(
            as_dicts(conversation)[:place], tokenize=False, add_generation_prompt=True
        )
        assert row[-3].trained is False
        assert "".join(segment.text for segment in row[:-2]) == prompt


def test_twin_prints_tool_use_and_reasoning_the_same(qwen3):
    tokenizer, template = qwen3, resolve_template(settings("auto"), qwen3)
    conversation = asked_with_tools()
    calls = [{"type": "function", "function": {"name": "weather", "arguments": {"city": "Köln"}}}]
    messages = as_dicts(conversation)
    messages[1]["tool_calls"] = calls
    schema = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    served = tokenizer.apply_chat_template(messages, tools=[schema], tokenize=False)
    assert "".join(segment.text for segment in template.render_segments(conversation)[-1]) == served
    thinking = talk(
        "Q", "<think>\na\n</think>\n\nA", "<tool_response>x</tool_response>", "<think>b</think>B", system="S"
    )
    served = tokenizer.apply_chat_template(as_dicts(thinking), tokenize=False)
    assert "".join(segment.text for segment in template.render_segments(thinking)[-1]) == served
