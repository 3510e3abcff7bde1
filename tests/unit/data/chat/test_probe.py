import pytest

from tunesmith.data.chat.prefixes import Ending
from tunesmith.data.chat.probe import accepts_system, find_ending, find_tool_support
from tunesmith.data.chat.template import ToolSupport
from tunesmith.errors import TemplateError


def renderer(after_answer, tools=False):
    def render(messages, schemas, add):
        text = str(schemas) if tools and schemas else ""
        for message in messages:
            if message["role"] == "assistant":
                calls = str(message.get("tool_calls", "")) if tools else ""
                text += "A:" + message["content"] + calls + after_answer
            elif message["role"] == "user":
                text += message["content"] + "|"
        return text + ("A:" if add else "")

    return render


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("<e>\n", ("<e>", "\n")),
        (" <e>", (" <e>", "")),
        ("<e><h>next", ("<e>", "<h>next")),
        ("###\n\n", ("###", "\n\n")),
        ("<eo>x", ("<eo>", "x")),
    ],
)
def test_ending_is_the_first_token_or_all_but_white_space(after, expected):
    assert find_ending(renderer(after), ["<e>", "<h>", "<eo>", "\n"]) == Ending(*expected)


def test_a_template_that_closes_no_answer_is_helped_out_with_the_end_token():
    assert find_ending(renderer("\n"), ["<e>"], "<e>") == Ending("<e>", "\n", is_printed=False)
    with pytest.raises(TemplateError, match="prints no end marker after an answer and the tokenizer has no end token"):
        find_ending(renderer(""), ["<e>"])


def test_tool_support_is_what_leaves_a_trace():
    assert find_tool_support(renderer("<e>")) == ToolSupport()
    assert find_tool_support(renderer("<e>", tools=True)) == ToolSupport(schemas=True, calls=True)


def test_system_that_is_not_printed_is_not_accepted():
    assert not accepts_system(renderer("<e>"))
