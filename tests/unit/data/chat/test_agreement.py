import pytest

from tests.unit.data.chat.conversations import settings, talk, template_of, tokenizer_of
from tests.unit.data.chat.test_resolve import CHATML, NO_SYSTEM
from tunesmith.data.chat import resolve_ours, resolve_template
from tunesmith.data.chat.agreement import Difference, compare, find_difference
from tunesmith.data.chat.catalog import find_entry
from tunesmith.data.chat.resolve import find_agreeing, resolve_unaided
from tunesmith.data.chat.samples import ALL_SAMPLES, PLAIN_SAMPLES
from tunesmith.data.chat.segment import Segment
from tunesmith.data.tokenization.agreement import compare_templates, learnt_texts
from tunesmith.errors import TemplateError

WITH_TOOLS = find_entry("qwen3_nothink").source


def own(chat_template):
    tokenizer = tokenizer_of("byte_level")
    tokenizer.chat_template = chat_template
    return tokenizer


def test_the_first_difference_is_shown_from_where_it_begins():
    tokenizer = tokenizer_of("byte_level")
    chatml, qwen = template_of("chatml", tokenizer), template_of("qwen", tokenizer)
    assert find_difference(chatml, chatml, ALL_SAMPLES) is None
    found = find_difference(chatml, qwen, {"x": talk("Q", "A")})
    assert found == Difference(
        "x",
        0,
        len("<|im_start|>"),
        "user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>",
        "system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n<|im_start|>user\nQ"
        "<|im_end|>\n<|im_start|>assistant\nA<|im_end|>",
    )


def test_a_refusal_and_another_number_of_rows_are_differences():
    tokenizer = tokenizer_of("byte_level")
    strict = resolve_template(settings("auto"), own(NO_SYSTEM))
    found = compare(strict, template_of("chatml", tokenizer), "x", talk("Q", "A", system="S"))
    assert found.left == "(the chat template refuses the row: System role not supported)"
    assert compare(strict, strict, "x", talk("Q", "A", system="S")) is None
    thinking = template_of("qwen3", tokenizer)
    found = compare(template_of("qwen3_nothink", tokenizer), thinking, "x", talk("Q", "A", "R", "B"))
    assert (found.row, found.place) == (0, len("<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"))


class Rows:
    """Stands for a template: gives rows of one text each."""

    def __init__(self, *texts):
        self.texts = texts

    def render_segments(self, conversation):
        return [[Segment(text, True, 1), Segment("", False, 1)] for text in self.texts]


def test_a_row_more_is_a_difference():
    found = compare(Rows("ab", "cd"), Rows("ab"), "x", talk("Q", "A"))
    assert found == Difference("x", 0, 2, "(2 rows)", "(1 rows)")


def test_a_name_takes_the_tokenizer_s_own_template_where_they_agree():
    tokenizer = own(WITH_TOOLS)
    template = resolve_template(settings("qwen3_nothink"), tokenizer)
    assert (template.name, template.source, template.method) == ("qwen3_nothink", WITH_TOOLS, "marks")
    other = resolve_template(settings("qwen3_nothink", ""), tokenizer)
    assert other.method == "prefixes", "an empty system message may be printed otherwise"


def test_a_name_keeps_ours_where_the_own_template_prints_no_tools(caplog):
    template = resolve_template(settings("qwen3_nothink"), own(CHATML))
    assert template.source != CHATML
    assert template.tools.calls
    assert "differs" not in caplog.text


def test_a_name_keeps_ours_with_a_warning_where_they_differ(caplog):
    template = resolve_template(settings("llama3"), own(CHATML))
    assert template.name == "llama3"
    assert "the tokenizer's own template differs (for 'one turn' it prints 'im_start|>user" in caplog.text
    resolve_template(settings("llama3"), own("{{ raise_exception('never') }}"))
    assert "refuses a plain question and answer: never" in caplog.text


def test_a_wire_name_keeps_ours_whatever_the_tokenizer_has(caplog):
    assert resolve_template(settings("chatml"), own(CHATML)).source.startswith("{#- tunesmith template chatml")
    assert caplog.text == ""


def test_a_switch_that_the_own_template_lacks_keeps_ours():
    source = find_entry("qwen3").source
    tokenizer = own(source)
    assert resolve_template(settings("qwen3"), tokenizer).source == source
    lacking = source.replace("enable_thinking", "thinking_is_on").replace("preserve_thinking", "keeps_thinking")
    tokenizer = own(lacking)
    assert resolve_template(settings("qwen3"), tokenizer).source == lacking
    for changes in ({"enable_thinking": False}, {"preserve_thinking": True}):
        assert "tunesmith template qwen3" in resolve_template(settings("qwen3", **changes), tokenizer).source


def test_names_that_agree_are_found():
    tokenizer = own(WITH_TOOLS)
    names = find_agreeing(resolve_unaided(tokenizer), tokenizer)
    assert {"chatml", "qwen3_nothink", "smollm", "yi"} <= set(names)
    assert not {"qwen", "qwen3", "llama3"} & set(names)
    tokenizer.eos_token = None
    assert "chatml" in find_agreeing(resolve_unaided(tokenizer), tokenizer)
    with pytest.raises(TemplateError, match="template is 'x', which is not known"):
        resolve_ours("x", tokenizer)


def test_ids_and_learnt_texts_are_compared():
    tokenizer = tokenizer_of("byte_level")
    chatml, qwen3 = template_of("chatml", tokenizer), template_of("qwen3_nothink", tokenizer)
    assert all(
        found.text is None and found.same_ids for found in compare_templates(tokenizer, chatml, qwen3, PLAIN_SAMPLES)
    )
    (found,) = compare_templates(tokenizer, chatml, template_of("qwen3", tokenizer), {"x": talk("Q", "A")})
    assert (found.sample, found.same_ids) == ("x", False)
    assert learnt_texts(tokenizer, chatml, talk("Q", "A", "R", "B")) == ["A<|im_end|>", "B<|im_end|>"]
    refusing = resolve_template(settings("auto"), own(NO_SYSTEM))
    assert learnt_texts(tokenizer, refusing, talk("Q", "A", system="S")).reason == "the chat template refuses the row"
    (refused,) = compare_templates(tokenizer, refusing, chatml, {"x": talk("Q", "A", system="S")})
    assert not refused.same_ids
