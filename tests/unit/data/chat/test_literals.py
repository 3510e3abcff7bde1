from tests.tiny.tokenizers import byte_level_tokenizer
from tunesmith.data.chat.literals import MARK, LiteralTexts, has_token, special_texts


def test_a_mark_is_put_into_questions_and_tool_results_alone():
    literals = LiteralTexts(["<a>", "<ab>", "[b]"])
    messages = [{"role": role, "content": "x <a><ab> [b]"} for role in ("system", "user", "assistant", "tool")]
    marked = f"x <{MARK}a><{MARK}ab> [{MARK}b]"
    assert [message["content"] for message in literals.protect(messages)] == [
        "x <a><ab> [b]",
        marked,
        "x <a><ab> [b]",
        marked,
    ]


def test_messages_without_such_texts_are_the_very_same():
    literals = LiteralTexts(["<a>"])
    messages = [{"role": "user", "content": "plain"}, {"role": "user", "content": [{"type": "text"}]}]
    assert all(one is other for one, other in zip(literals.protect(messages), messages, strict=True))
    assert literals.protect([{"role": "user", "content": "1 < 2"}]) == [{"role": "user", "content": "1 < 2"}]


def test_special_tokens_of_one_character_are_left_out():
    tokenizer = byte_level_tokenizer()
    tokenizer.add_special_tokens({"extra_special_tokens": ["¦", "<x>"]})
    assert special_texts(tokenizer) == ("<x>", "<|endoftext|>", "<|im_end|>", "<|im_start|>")


def test_a_token_is_a_text_of_the_vocabulary():
    tokenizer = byte_level_tokenizer()
    assert has_token(tokenizer, "<|im_end|>")
    assert not has_token(tokenizer, "<|eot_id|>")
