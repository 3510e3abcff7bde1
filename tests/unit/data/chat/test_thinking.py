import pytest

from tests.unit.data.chat.conversations import as_dicts, settings, talk, template_of, tokenizer_of
from tunesmith.data.chat import resolve_template
from tunesmith.data.chat.thinking import (
    KNOWN_TAGS,
    Tags,
    Thinking,
    complete_text,
    find_tags,
    split_reasoning,
)
from tunesmith.data.records import Conversation, Message, ToolCall
from tunesmith.errors import TemplateError

THOUGHT = "<think>\nhm\n</think>\n\n"
EMPTY = "<think>\n\n</think>\n\n"
TALK = talk("Q", THOUGHT + "A", "R", "B")


def rows_of(template, conversation=TALK):
    """Prompt and answer of each answer that is learnt, row by row."""
    found = []
    for row in template.render_segments(conversation):
        places = [place for place, segment in enumerate(row) if segment.trained]
        found.append([("".join(s.text for s in row[:place]), row[place].text) for place in places])
    return found


def header(text):
    return text.rpartition("<|im_start|>assistant\n")[2]


@pytest.mark.parametrize("name", ["qwen3", "qwen3_5", "mimo", "qwen3_omni"])
def test_by_itself_reasoning_is_learnt_and_dropped_from_history(name):
    first, second = rows_of(template_of(name, tokenizer_of("byte_level")))
    assert first[0][1] == THOUGHT + "A<|im_end|>"
    assert second[0][1] == EMPTY + "B<|im_end|>"
    assert "hm" not in second[0][0]
    assert header(second[0][0]) == ""


def test_switched_off_it_is_taken_out_and_the_empty_form_is_prompt():
    tokenizer = tokenizer_of("byte_level")
    template = template_of("qwen3", tokenizer, enable_thinking=False)
    first, second = rows_of(template)
    assert (header(first[0][0]), first[0][1]) == (EMPTY, "A<|im_end|>")
    assert (header(second[0][0]), second[0][1]) == (EMPTY, "B<|im_end|>")
    template.apply_to_tokenizer(tokenizer)
    served = tokenizer.apply_chat_template(as_dicts(TALK)[:1], add_generation_prompt=True, tokenize=False)
    assert served == first[0][0] == template.render_prompt(TALK.messages[:1])
    on = tokenizer.apply_chat_template(
        as_dicts(TALK)[:1], add_generation_prompt=True, tokenize=False, enable_thinking=True
    )
    assert header(on) == ""


def test_left_open_each_answer_is_as_it_is():
    first, second = rows_of(template_of("qwen3", tokenizer_of("byte_level"), enable_thinking=None))
    assert (header(first[0][0]), first[0][1]) == ("", THOUGHT + "A<|im_end|>")
    assert (header(second[0][0]), second[0][1]) == (EMPTY, "B<|im_end|>")


def test_preserved_it_stays_in_one_row():
    tokenizer = tokenizer_of("byte_level")
    template = template_of("qwen3", tokenizer, preserve_thinking=True)
    ((first, second),) = rows_of(template)
    assert first[1] == THOUGHT + "A<|im_end|>"
    assert second[1] == EMPTY + "B<|im_end|>"
    assert "hm" in second[0]
    template.apply_to_tokenizer(tokenizer)
    served = tokenizer.apply_chat_template(as_dicts(TALK)[:3], add_generation_prompt=True, tokenize=False)
    assert served == second[0]
    again = resolve_template(settings("auto", preserve_thinking=True), tokenizer)
    assert again.source == template.source


def test_in_a_chain_of_calls_it_is_kept_and_the_chain_is_one_row():
    chain = Conversation(
        (
            Message("user", "Q"),
            Message("assistant", THOUGHT + "Look.", (ToolCall("f", "{}"),)),
            Message("tool", "1"),
            Message("assistant", THOUGHT + "A"),
        )
    )
    ((first, second),) = rows_of(template_of("qwen3", tokenizer_of("byte_level")), chain)
    assert first[1].startswith(THOUGHT + "Look.\n<tool_call>")
    assert "hm" in second[0]
    assert second[1] == THOUGHT + "A<|im_end|>"
    asked_again = Conversation((*chain.messages, Message("user", "R"), Message("assistant", "B")))
    rows = rows_of(template_of("qwen3", tokenizer_of("byte_level")), asked_again)
    assert [len(row) for row in rows] == [2, 1]
    assert "hm" not in rows[1][0][0]


def test_families_that_print_the_empty_form_in_history_do():
    first, second = rows_of(template_of("glm4_7", tokenizer_of("metaspace")), talk("Q", "<think>hm</think>A", "R", "B"))
    assert first[0][1] == "\n<think>hm</think>A</s>"
    assert second[0] == ("[gMASK]<sop><|user|>\nQ<|assistant|>\n</think>A<|user|>\nR<|assistant|>", "\n</think>B</s>")
    silent = template_of("glm4_7", tokenizer_of("metaspace"), enable_thinking=False)
    assert silent.render_prompt(talk("Q").messages) == "[gMASK]<sop><|user|>\nQ<|assistant|>\n</think>"
    plain = rows_of(template_of("glm4_moe", tokenizer_of("metaspace")), talk("Q", "A", "R", "B"))
    assert plain[1][0][0].endswith("<|assistant|>\nA<|user|>\nR<|assistant|>")


def test_reasoning_content_of_clients_is_printed():
    template = template_of("qwen3", tokenizer_of("byte_level"))
    messages = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A", "reasoning_content": "hm"}]
    assert template.render_prompt(messages, add_generation_prompt=False).endswith(THOUGHT + "A<|im_end|>\n")


OPENING = (  # as DeepSeek-R1's: reasoning is opened by the prompt and never printed
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'].split('</think>')[-1] | trim }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)


def test_a_prompt_that_opens_reasoning_is_learnt_from_what_follows():
    tokenizer = tokenizer_of("byte_level")
    tokenizer.chat_template = OPENING
    first, second = rows_of(resolve_template(settings("auto"), tokenizer))
    assert first[0] == (
        "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n<think>\n",
        "hm\n</think>\n\nA<|im_end|>",
    )
    assert second[0][1] == "\n</think>\n\nB<|im_end|>"
    assert second[0][0].endswith(
        "assistant\nA<|im_end|>\n<|im_start|>user\nR<|im_end|>\n<|im_start|>assistant\n<think>\n"
    )


def test_switches_that_a_tokenizer_s_own_template_does_not_have(caplog):
    tokenizer = tokenizer_of("byte_level")
    tokenizer.chat_template = OPENING
    with pytest.raises(TemplateError, match="preserve_thinking is set, but"):
        resolve_template(settings("auto", preserve_thinking=True), tokenizer)
    with caplog.at_level("INFO"):
        resolve_template(settings("auto", enable_thinking=False), tokenizer)
    assert "enable_thinking has no effect: template auto" in caplog.text
    tokenizer.chat_template = OPENING.replace(
        "m['content'].split", "('' if clear_thinking else '') + m['content'].split"
    )
    assert "clear_thinking = false" in resolve_template(settings("auto", preserve_thinking=True), tokenizer).source


def test_reasoning_is_split_off_by_the_tags():
    tags = Tags()
    assert split_reasoning({"content": THOUGHT + "A"}, tags) == ("hm", "A")
    assert split_reasoning({"content": "hm\n</think>\n\nA"}, tags) == ("hm", "A")
    assert split_reasoning({"content": "A"}, tags) == ("", "A")
    assert split_reasoning({"content": "A", "reasoning_content": "hm"}, tags) == ("hm", "A")


def test_only_answers_lose_reasoning():
    messages = [{"role": role, "content": THOUGHT + "A", "reasoning_content": "x"} for role in ("user", "assistant")]
    thinking = Thinking(enabled=False, is_switchable=True)
    assert thinking.prepare(messages) == [messages[0], {"role": "assistant", "content": "A"}]
    assert Thinking(enabled=False).prepare(messages) is messages


@pytest.mark.parametrize(
    ("prompt", "text", "expected"),
    [
        ("a<think>\n", "ab", "a<think>\n\n</think>\n\nb"),
        ("a<think>\n", "a<think>hm</think>b", "a<think>\nhm</think>b"),
        ("a<think>\n\n</think>\n\n", "ab", "a<think>\n\n</think>\n\nb"),
        ("a<think>\n\n</think>\n\n", "a<think>hm</think>b", None),
        ("a<think>\nwell", "ab", None),
        ("a<think>\n", "b", None),
        ("a", "ab", None),
    ],
)
def test_an_answer_is_completed_behind_a_prompt_that_ends_with_reasoning(prompt, text, expected):
    assert complete_text(prompt, text, {"content": "b"}, Tags()) == expected


def test_a_prompt_with_the_empty_form_is_learnt_from_what_follows():
    tokenizer = tokenizer_of("byte_level")
    tokenizer.chat_template = OPENING.replace("<think>\n{%", "<think>\n\n</think>\n\n{%")
    first, _ = rows_of(resolve_template(settings("auto"), tokenizer))
    assert (header(first[0][0]), first[0][1]) == (EMPTY, "A<|im_end|>")


def test_tags_are_those_that_a_template_speaks_of():
    assert find_tags("x </seed:think>") == KNOWN_TAGS[1]
    assert find_tags("nothing") == Tags()


def test_the_reasoning_of_an_answer_is_told_from_its_words():
    qwen3 = template_of("qwen3", tokenizer_of("byte_level"))
    parsed = qwen3.parse_answer(THOUGHT + "A")
    assert (parsed.reasoning, parsed.content) == ("hm", "A")
    gpt_oss = template_of("gpt_oss", tokenizer_of("metaspace"))
    silent = gpt_oss.parse_answer("<|channel|>final<|message|>A")
    assert (silent.reasoning, silent.content) == ("", "A")
    thought = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>A"
    assert (gpt_oss.parse_answer(thought).reasoning, gpt_oss.parse_answer(thought).content) == ("hm", "A")
