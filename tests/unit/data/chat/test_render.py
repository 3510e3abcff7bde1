import pytest
from jinja2.runtime import missing

from tunesmith.data.chat import render
from tunesmith.data.chat.render import RenderingRefusedError, compile_template, render_marked, render_text
from tunesmith.errors import TemplateError

MESSAGES = [{"role": "user", "content": "Q"}]


def test_text_is_cut_at_the_marks():
    source = "a{% generation %}b{{ messages[0]['content'] }}{% endgeneration %}c{% generation %}{% endgeneration %}"
    assert render_marked(source, MESSAGES, None, {}) == ["a", "bQ", "c", "", ""]
    assert render_text(source, MESSAGES, None, {}) == "abQc"


def test_marks_inside_a_macro_are_lost_but_the_text_is_not():
    source = "{% macro say(x) %}{% generation %}{{ x }}{% endgeneration %}{% endmacro %}a{{ say('b') }}"
    assert render_marked(source, MESSAGES, None, {}) == ["ab"]


def test_empty_text_is_not_taken_for_a_mark():
    assert render_marked("{{ '' }}a{{ messages[0]['content'][:0] }}", MESSAGES, None, {}) == ["a"]


def test_tojson_leaves_text_readable():
    assert render_text("{{ {'a': '<é>'} | tojson }}", MESSAGES, None, {}) == '{"a": "<é>"}'


def test_loop_controls_and_namespaces_work():
    source = (
        "{% set ns = namespace(n=0) %}{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}"
        "{% set ns.n = i %}{% endfor %}{{ ns.n }}"
    )
    assert render_text(source, MESSAGES, None, {}) == "2"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ 'a'.split.__self__.x }}",
        "{% set ns = namespace(__class__=1) %}",
        "{{ messages.append(1) }}",
        "{{ raise_exception('no') }}",
        "{{ 'a' + none }}",
        "{{ nothing.at_all }}",
        "{{ 1 // (messages | length - 1) }}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
    ],
)
def test_what_a_template_may_not_or_cannot_do_refuses_the_row(source):
    with pytest.raises(RenderingRefusedError, match="the chat template refuses the row"):
        render_text(source, MESSAGES, None, {})


def test_broken_jinja_is_named_with_its_line():
    with pytest.raises(TemplateError, match=r"not valid Jinja \(line 2\)"):
        compile_template("a\n{% if %}")


def test_methods_of_a_message_win_over_its_fields_and_hidden_names_stay_hidden():
    message = {"role": "user", "items": "field", "_x": 1}
    assert render_text("{{ messages[0].role }}|{{ messages[0]['items'] }}", [message], None, {}) == "user|field"
    assert render_text("{% for k, v in messages[0].items() %}{{ k }} {% endfor %}", [message], None, {}) == (
        "role items _x "
    )
    source = (
        "{% for m in messages %}{{ loop.index }}{{ loop.cycle('a', 'b') }}{{ loop.missing is defined }}{% endfor %}"
    )
    assert render_text(source, [message, message], None, {}) == "1aFalse2bFalse"
    for hidden in ("{{ messages[0].__class__ }}", "{% for m in messages %}{{ loop._iterator.x }}{% endfor %}"):
        with pytest.raises(RenderingRefusedError, match="refuses the row"):
            render_text(hidden + "{{ nothing.at_all }}", [message], None, {})


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ messages[0]['content'].lstrip('\\n') + 'a,b'.split(',')[1] }}", "Qb"),
        ("{% for m in messages %}{% set x = m['content'].replace('Q', 'R') %}{{ x.find('R') }}{% endfor %}", "0"),
        ("{{ name is defined }}{% if false %}{% set name = 1 %}{% endif %}{{ name }}", "False"),
        ("{% for m in messages %}{% if loop.last %}{% set x = 1 %}{% endif %}{{ x }}{{ y }}{% endfor %}", "1"),
        ("{% macro say() %}{{ x }}{% endmacro %}{% set x = 3 %}{{ say() }}", "3"),
        (
            "{% macro s(context, function) %}{{ context + function }}{% endmacro %}{{ s(context=1, function=2) }}",
            "3",
        ),
        ("{% set x = 3 %}{% block b %}{{ x }}{{ messages[0]['role'] }}{% endblock %}", "3user"),
        ("{{ '{0}'.format('a') }}{{ '{0.__class__}'.format('a') }}", "a"),
    ],
)
def test_short_ways_print_what_jinja_prints(source, text):
    assert render_text(source, MESSAGES, None, {}) == text


def test_a_name_that_the_compiled_text_does_not_show_means_nothing_as_any_other():
    assert render._Names({"a": 1})["b"] is missing
