import pytest

from tunesmith.data.chat.compose import compose_template, quoted
from tunesmith.data.chat.render import RenderingRefusedError, render_marked, render_text
from tunesmith.data.chat.wire import Thought, Wire

PLAIN = Wire(system="<s {}>", user="<u {}>", header="<a>", marker="<end>", separator="\n")
TALK = [{"role": role, "content": content} for role, content in [("user", "Q"), ("assistant", "A")]]
TOKENS = {"bos_token": "<BOS>", "eos_token": "<EOS>"}


def parts(wire, messages=TALK, tools=None, **variables):
    return render_marked(compose_template(wire), messages, tools, {**TOKENS, **variables})


@pytest.mark.parametrize("text", ["it's", "a\\b", "line\nbreak", "{{ x }} {% y %}", "量子 🙂", ""])
def test_a_quoted_text_reads_as_itself(text):
    assert render_text("{{ " + quoted(text) + " }}", [], None, {}) == text


def test_braces_that_are_no_place_are_printed():
    wire = PLAIN.but(result='{"content": {}}')
    assert "".join(parts(wire, [*TALK, {"role": "tool", "content": "1"}])).endswith('{"content": 1}')


def test_tokens_stand_where_the_pattern_says():
    wire = PLAIN.but(user="{bos}u {}{eos}", marker=None)
    assert parts(wire) == ["<BOS>u Q<EOS><a>", "A<EOS>", "\n"]


def test_a_start_token_that_does_not_exist_prints_nothing():
    assert render_text(compose_template(PLAIN.but(prefix="{bos}")), TALK, None, {}) == "<u Q><a>A<end>\n"


def test_a_system_message_stands_in_front_or_in_the_first_question():
    system = [{"role": "system", "content": "S"}, *TALK, {"role": "user", "content": "R"}]
    assert "".join(parts(PLAIN, system)) == "<s S><u Q><a>A<end>\n<u R>"
    inside = PLAIN.but(system="[{}]", system_in_question=True)
    assert "".join(parts(inside, system)) == "<u [S]Q><a>A<end>\n<u R>"
    with pytest.raises(RenderingRefusedError, match="no place for a turn of role system"):
        parts(inside, [*TALK, {"role": "system", "content": "S"}])
    assert "".join(parts(PLAIN, [*TALK, {"role": "system", "content": "S"}])).endswith("<s S>")


def test_tools_follow_the_system_message_or_stand_before_it():
    schema = [{"type": "function", "function": {"name": "f"}}]
    after = "".join(parts(PLAIN.but(default_system="S", tools="lfm2"), tools=schema))
    assert after.startswith('<s S\nList of tools: <|tool_list_start|>[{"name": "f"}]<|tool_list_end|>><u Q>')
    before = "".join(parts(PLAIN.but(default_system="S", tools="qwen3_5"), tools=schema))
    assert before.startswith("<s # Tools")
    assert "</IMPORTANT>\n\nS><u Q>" in before


def test_results_in_a_row_share_one_turn_where_the_wire_says_so():
    wire = PLAIN.but(results_opening="<r>", result="({})", results_closing="</r>")
    results = [{"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}]
    assert "".join(parts(wire, [*TALK, *results, {"role": "user", "content": "R"}, results[0]])) == (
        "<u Q><a>A<end>\n<r>(1)(2)</r><u R><r>(1)</r>"
    )


def test_earlier_answers_are_closed_differently_where_the_wire_says_so():
    assert parts(PLAIN.but(closed_history="|"), [*TALK, *TALK])[1::2] == ["A|", "A<end>"]
    assert parts(PLAIN.but(closed_history=""), [*TALK, *TALK])[1::2] == ["A", "A<end>"]


def test_calls_stand_behind_the_words_and_their_opening():
    call = {"type": "function", "function": {"name": "f", "arguments": {}}}
    wire = PLAIN.but(tools="mistral", call_opening="[CALLS] ", lead=" ")
    asked = [TALK[0], {"role": "assistant", "content": "Hm", "tool_calls": [call]}]
    assert parts(wire, asked)[1] == ' Hm\n[CALLS] [{"name": "f", "arguments": {}}]<end>'
    asked[1]["content"] = ""
    assert parts(wire, asked)[1] == '[CALLS] [{"name": "f", "arguments": {}}]<end>'


@pytest.mark.parametrize(("inner", "expected"), [(False, "A<end>"), (True, "<t></t>A<end>")])
def test_the_empty_form_inside_a_chain_follows_the_family(inner, expected):
    wire = PLAIN.but(thought=Thought("<t>", "</t>", inner=inner))
    chain = [*TALK, {"role": "tool", "content": "1"}, TALK[1]]
    assert parts(wire, chain)[1::2] == [expected, "<t></t>A<end>"]


def test_an_unknown_role_is_refused():
    with pytest.raises(RenderingRefusedError, match="no place for a turn of role critic"):
        parts(PLAIN, [{"role": "critic", "content": "x"}])


def test_a_template_without_a_header_needs_no_prompt():
    assert "add_generation_prompt" not in compose_template(PLAIN.but(header=""))
    assert render_text(compose_template(PLAIN), TALK[:1], None, {"add_generation_prompt": True}) == "<u Q><a>"
