import pytest

from tests.unit.data.chat.conversations import as_dicts, settings, talk, tokenizer_of
from tunesmith.data.chat import RenderingRefusedError, resolve_template
from tunesmith.data.chat.catalog import find_entry
from tunesmith.data.chat.prefixes import Ending
from tunesmith.errors import TemplateError

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FORGETFUL = (  # earlier answers lose their reasoning
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{{ m['content'] if loop.last or m['role'] != 'assistant' else m['content'].split('</think>')[-1] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ALWAYS_PROMPTING = (  # prints the header of the next answer whether asked or not
    "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] | trim }}</s>{% endfor %}[assistant]"
)
NO_SYSTEM = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKED = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['role'] == 'assistant' %}"
    "{% generation %}{{ m['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}"
    "{% else %}{{ m['content'] }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def own(chat_template, kind="byte_level"):
    tokenizer = tokenizer_of(kind)
    tokenizer.chat_template = chat_template
    return tokenizer, resolve_template(settings("auto"), tokenizer)


def marked(template, conversation):
    return [[segment.text for segment in row if segment.trained] for row in template.render_segments(conversation)]


def test_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(TemplateError, match=r"template is 'lama3'.*Did you mean llama3.*tunesmith template list"):
        resolve_template(settings("lama3"), tokenizer_of("byte_level"))


def test_auto_without_a_template_names_ours():
    with pytest.raises(TemplateError, match=r"no chat template of its own.*chatml"):
        resolve_template(settings(None), tokenizer_of("byte_level"))


def test_own_template_is_rendered_prefix_by_prefix():
    tokenizer, template = own(CHATML)
    assert (template.name, template.method, template.source) == ("auto", "prefixes", CHATML)
    conversation = talk("Q", "A", "R", "B")
    assert marked(template, conversation) == [["A<|im_end|>", "B<|im_end|>"]]
    (row,) = template.render_segments(conversation)
    assert "".join(s.text for s in row) == tokenizer.apply_chat_template(as_dicts(conversation), tokenize=False)


def test_only_the_last_answer_is_looked_for_when_only_it_is_learnt():
    _, template = own(CHATML)
    rows = template.render_segments(talk("Q", "A", "R", "B"), only_last=True)
    assert [[segment.text for segment in row if segment.trained] for row in rows] == [["B<|im_end|>"]]


def test_own_template_that_forgets_reasoning_splits_the_row():
    _, template = own(FORGETFUL)
    conversation = talk("Q", "<think>a</think>A", "R", "<think>b</think>B")
    assert marked(template, conversation) == [["<think>a</think>A<|im_end|>"], ["<think>b</think>B<|im_end|>"]]
    second = "".join(segment.text for segment in template.render_segments(conversation)[1])
    assert "<think>a" not in second
    assert marked(template, talk("Q", "A", "R", "B")) == [["A<|im_end|>", "B<|im_end|>"]]


def test_template_that_always_prompts_still_knows_its_end_marker():
    tokenizer, template = own(ALWAYS_PROMPTING, "metaspace")
    assert template.ending == Ending("</s>", "[assistant]")
    conversation = talk(" Q ", "A", "R", "B")
    assert marked(template, conversation) == [["A</s>", "B</s>"]]
    (row,) = template.render_segments(conversation)
    assert "".join(s.text for s in row) == tokenizer.apply_chat_template(as_dicts(conversation), tokenize=False)


def test_row_that_the_template_raises_on_is_refused_alone():
    _, template = own(NO_SYSTEM)
    with pytest.raises(RenderingRefusedError, match="refuses the row: System role not supported"):
        template.render_segments(talk("Q", "A", system="S"))
    assert marked(template, talk("Q", "A")) == [["A<|im_end|>"]]


def test_default_system_for_a_template_without_system_is_refused_at_once():
    tokenizer = tokenizer_of("byte_level")
    tokenizer.chat_template = NO_SYSTEM
    with pytest.raises(TemplateError, match="default_system is set, but"):
        resolve_template(settings("auto", "Be brief."), tokenizer)


def test_marks_of_the_own_template_are_used():
    _, template = own(MARKED)
    assert template.method == "marks"
    assert marked(template, talk("Q", "A", "R", "B")) == [["A<|im_end|>", "B<|im_end|>"]]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            ("{{ m['content'] + '<|im_end|>' }}{% endgeneration %}", "{{ m['content'] }}{% endgeneration %}<|im_end|>"),
            "marker",
        ),
        (("{% if m['role'] == 'assistant' %}", "{% if m['role'] == 'assistant' and loop.last %}"), "answers"),
    ],
)
def test_marks_that_miss_the_end_marker_or_an_answer_are_not_trusted(change, why):
    _, template = own(MARKED.replace(*change))
    assert template.method == "prefixes", why


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            CHATML.replace("<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\nAnswer: {% endif %}"),
            "asked differently",
        ),
        ("{{ raise_exception('never') }}", "refuses a plain question and answer: never"),
        ("{% for m in messages %}{{ m['role'] }}<|im_end|>{% endfor %}", "does not print an answer as it is"),
        ("{% for m in messages %}", "not valid Jinja"),
    ],
)
def test_own_template_that_cannot_be_learnt_from_is_refused(source, message):
    with pytest.raises(TemplateError, match=message):
        own(source)


def test_one_of_ours_is_known_again_after_it_was_saved():
    tokenizer = tokenizer_of("byte_level")
    resolve_template(settings("qwen3"), tokenizer).apply_to_tokenizer(tokenizer)
    again = resolve_template(settings("auto"), tokenizer)
    assert (again.name, again.method, again.rewrites_history) == ("qwen3", "marks", True)


def test_template_that_ends_with_the_end_token_needs_one():
    tokenizer = tokenizer_of("byte_level")
    tokenizer.eos_token = None
    with pytest.raises(TemplateError, match="template vicuna ends answers with the tokenizer's end token"):
        resolve_template(settings("vicuna"), tokenizer)


def test_named_templates_of_a_tokenizer_use_the_default_one():
    tokenizer = tokenizer_of("byte_level")
    tokenizer.chat_template = {"tool_use": NO_SYSTEM, "default": CHATML}
    assert resolve_template(settings("auto"), tokenizer).source == CHATML


def test_our_entry_can_be_looked_up_by_alias():
    assert (
        resolve_template(settings("qwen2_5"), tokenizer_of("byte_level")).source
        == find_entry("qwen").signature + find_entry("qwen").source
    )


def test_own_template_that_closes_no_answer_gets_the_end_token_behind_each():
    open_ended = (
        "[gMASK]{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    )
    tokenizer, template = own(open_ended, "metaspace")
    assert not template.ending.is_printed
    assert marked(template, talk("Q", "A", "R", "B")) == [["A</s>"], ["B</s>"]]
    assert template.end_markers == ("</s>",)
    tokenizer.eos_token = None
    with pytest.raises(TemplateError, match="prints no end marker after an answer and the tokenizer has no end token"):
        resolve_template(settings("auto"), tokenizer)


def test_marks_of_a_template_that_refuses_the_probe_are_not_trusted():
    once = MARKED.replace(
        "{% for m in messages %}", "{% if messages|length > 2 %}{{ 'x' + 1 }}{% endif %}{% for m in messages %}"
    )
    assert own(once)[1].method == "prefixes"
