import pytest

from tests.unit.data.chat.conversations import DISTINCT_NAMES, NAMES, shared_tokenizer, talk, template_of
from tunesmith.data.chat.catalog import ENTRIES, find_entry, find_saved_entry, find_twin, template_names

WIRE = {
    "alpaca": "SYS\n\n### Instruction:\nQ\n\n### Response:\nA</s>\n\n",
    "chatml": "<|im_start|>system\nSYS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n",
    "deepseek3": "<s>SYS<｜User｜>Q<｜Assistant｜>A</s>",
    "default": "System: SYS</s>\nHuman: Q</s>\nAssistant:A</s>\n",
    "gemma": "<s><start_of_turn>user\nSYS\n\nQ<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n",
    "llama2": "<s>[INST] <<SYS>>\nSYS\n<</SYS>>\n\nQ [/INST] A</s>",
    "llama3": (
        "<s><|start_header_id|>system<|end_header_id|>\n\nSYS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nQ<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>"
    ),
    "mistral": "<s>[INST] SYS\n\nQ[/INST] A</s>",
    "glm4": "[gMASK]<sop><|system|>\nSYS<|user|>\nQ<|assistant|>\nA</s>",
    "granite4": (
        "<|start_of_role|>system<|end_of_role|>SYS<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>Q<|end_of_text|>\n"
        "<|start_of_role|>assistant<|end_of_role|>A<|end_of_text|>\n"
    ),
    "phi": "<|system|>\nSYS<|end|>\n<|user|>\nQ<|end|>\n<|assistant|>\nA<|end|>\n",
    "qwen": "<|im_start|>system\nSYS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n",
    "qwen3": (
        "<|im_start|>system\nSYS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\nA<|im_end|>\n"
    ),
    "smollm2": "<|im_start|>system\nSYS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n",
    "vicuna": "SYS USER: Q ASSISTANT: A</s>",
}


@pytest.mark.parametrize("name", WIRE)
def test_template_prints_its_wire_text(name):
    template = template_of(name, shared_tokenizer("metaspace"))
    text = "".join(segment.text for segment in template.render_segments(talk("Q", "A", system="SYS"))[0])
    assert text == WIRE[name]


@pytest.mark.parametrize(
    ("name", "beginning"),
    [
        ("alpaca", "Below is an instruction that describes a task. Write a response that"),
        (
            "qwen",
            "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n<|im",
        ),
        ("vicuna", "A chat between a curious user and an artificial intelligence assistant. The assistant gives"),
        (
            "smollm2",
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n<|im_",
        ),
        ("chatml", "<|im_start|>user"),
    ],
)
def test_template_has_its_own_system_text_when_none_is_given(name, beginning):
    assert template_of(name, shared_tokenizer("byte_level")).render_prompt(talk("Q").messages).startswith(beginning)


@pytest.mark.parametrize("name", DISTINCT_NAMES)
def test_history_is_rewritten_exactly_where_the_entry_says_so(name):
    template = template_of(name, shared_tokenizer("metaspace"))
    answered = template.render_prompt(talk("Q", "A").messages, add_generation_prompt=False)
    continued = template.render_prompt(talk("Q", "A", "R", "B").messages, add_generation_prompt=False)
    assert continued.startswith(answered.rstrip()) is not template.rewrites_history


def test_aliases_name_the_same_entry():
    assert find_entry("qwen2") is find_entry("qwen2_5") is find_entry("qwen")
    assert find_entry("qwen9") is None


def test_names_are_unique_and_one_for_each_family():
    names = template_names()
    assert len(set(names)) == len(names) == 126
    assert {"chatml", "qwen2", "qwen2_5", "default", "openchat-3.6", "aeva"} <= set(names)


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_saved_text_has_no_marks_and_is_recognised_again(entry):
    assert "generation -%}" not in entry.source
    assert entry.marked_source.count("generation -%}") == 2
    assert find_saved_entry(entry.signature + entry.source) == (entry, entry.signature)
    other = entry.with_tools("glm4")
    assert find_saved_entry(other.signature + "{{- 'x' -}}" + other.source) == (
        find_entry(entry.name).with_tools("glm4"),
        other.signature + "{{- 'x' -}}",
    )


def test_a_text_that_was_changed_is_not_taken_for_ours():
    entry = find_entry("chatml")
    assert find_saved_entry(entry.signature + entry.source + "x") is None
    assert find_saved_entry(entry.source) is None
    assert find_saved_entry("{#- tunesmith template nobody, tools qwen -#}") is None


def test_twin_is_found_by_the_text_alone():
    assert find_twin("something else") is None
