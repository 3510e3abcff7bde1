from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny.tokenizers import byte_level_tokenizer, metaspace_tokenizer
from tunesmith.inference.pieces import TextPieces


class Bytes:
    """A tokenizer whose tokens are bytes; 300 is a special token."""

    def decode(self, token_ids, *, skip_special_tokens):
        text = b"".join(b"<end>" if token == 300 else bytes([token]) for token in token_ids)
        return text.replace(b"<end>", b"" if skip_special_tokens else b"<end>").decode("utf-8", errors="replace")


def split(tokenizer, ids, **options):
    pieces = TextPieces(tokenizer, **options)
    return [*(pieces.add(token) for token in ids), pieces.finish()]


def test_half_a_character_is_held_back():
    # "你" is E4 BD A0
    assert split(Bytes(), [0x61, 0xE4, 0xBD, 0xA0, 0x62]) == ["a", "", "", "你", "b", ""]


def test_a_character_that_is_never_completed_is_shown_at_the_end():
    assert split(Bytes(), [0x61, 0xE4, 0xBD]) == ["a", "", "", "\ufffd"]


def test_special_tokens_are_left_out_unless_asked_for():
    assert split(Bytes(), [0x61, 300]) == ["a", "", ""]
    assert split(Bytes(), [0x61, 300], skip_special_tokens=False) == ["a", "<end>", ""]


def test_a_tokenizer_that_drops_the_first_space_keeps_the_others():
    tokenizer = metaspace_tokenizer()
    ids = tokenizer("The capital of France", add_special_tokens=False)["input_ids"]
    assert "".join(split(tokenizer, ids)) == "The capital of France"


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab 你好\n😀é1"), max_size=20))
def test_the_pieces_joined_are_the_text(text):
    tokenizer = byte_level_tokenizer()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert "".join(split(tokenizer, ids)) == text
