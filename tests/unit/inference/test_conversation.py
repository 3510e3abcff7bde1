import pytest

from tests.tiny.tokenizers import byte_level_tokenizer
from tunesmith.config import DataConfig, GenerationConfig
from tunesmith.data.chat import resolve_template
from tunesmith.data.records import Message
from tunesmith.inference.conversation import ChatSession


class Parrot:
    """Answers with what it was given; remembers the prompts."""

    def __init__(self, tokenizer, *answers):
        self.tokenizer = tokenizer
        self.answers = list(answers)
        self.prompts = []

    def generate(self, prompts, options):
        raise NotImplementedError

    def stream(self, prompt, options):
        self.prompts.append(self.tokenizer.decode(prompt))
        yield from self.answers.pop(0)


@pytest.fixture
def tokenizer():
    return byte_level_tokenizer()


def start(tokenizer, *answers, system=None):
    template = resolve_template(DataConfig(template="chatml"), tokenizer)
    parrot = Parrot(tokenizer, *answers)
    return ChatSession(parrot, tokenizer, template, GenerationConfig(), system=system), parrot


def test_turns_are_rendered_with_the_template(tokenizer):
    session, parrot = start(tokenizer, ["Hel", "lo"], ["Bye"])
    assert list(session.answer("Hi")) == ["Hel", "lo"]
    assert list(session.answer("Go")) == ["Bye"]
    assert parrot.prompts == [
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
        (
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
            "<|im_start|>user\nGo<|im_end|>\n<|im_start|>assistant\n"
        ),
    ]


def test_the_prompt_ids_are_what_a_server_sends(tokenizer):
    session, _ = start(tokenizer)
    session.template.apply_to_tokenizer(tokenizer)
    served = tokenizer.apply_chat_template([{"role": "user", "content": "你好"}], add_generation_prompt=True)
    assert session.prompt_ids([Message("user", "你好")]) == list(served["input_ids"])


def test_clear_forgets_the_turns_and_keeps_the_system_message(tokenizer):
    session, parrot = start(tokenizer, ["a"], ["b"], system="Be brief.")
    list(session.answer("one"))
    session.clear()
    list(session.answer("two"))
    expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n"
    assert parrot.prompts[1] == expected


def test_an_answer_that_is_stopped_is_remembered_as_far_as_it_was_read(tokenizer):
    session, _ = start(tokenizer, ["Hel", "lo"])
    answer = session.answer("Hi")
    next(answer)
    answer.close()
    assert session.messages == [Message("user", "Hi"), Message("assistant", "Hel")]


def test_a_question_without_an_answer_is_forgotten(tokenizer):
    session, _ = start(tokenizer, [])
    assert list(session.answer("Hi")) == []
    assert session.messages == []
