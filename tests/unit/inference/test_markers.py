import pytest

from tests.tiny.models import tiny_model
from tests.tiny.tokenizers import byte_level_tokenizer
from tunesmith.config import GenerationConfig
from tunesmith.inference.local import LocalGenerator
from tunesmith.inference.markers import MarkerFilter, cut_at_marker


class Words:
    """A tokenizer whose tokens are the letters of a text."""

    def decode(self, token_ids, *, skip_special_tokens):
        return "".join(map(chr, token_ids))


def run(markers, *pieces):
    marker_filter = MarkerFilter(markers)
    shown = [marker_filter.add(piece) for piece in pieces]
    return [*shown, marker_filter.finish()], marker_filter.is_found


def test_what_may_begin_a_marker_is_held_back():
    assert run(["<end>"], "Hi <", "en", "d> and", "more") == (["Hi ", "", "", "", ""], True)


def test_what_turns_out_to_be_text_is_shown():
    assert run(["<end>"], "a <", "b <e", "n") == (["a ", "<b ", "", "<en"], False)


def test_the_first_of_several_markers_counts():
    assert run(["</s>", "User:"], "a User: b </s>") == (["a ", ""], True)


def test_without_markers_everything_passes():
    assert run([], "a <", "b") == (["a <", "b", ""], False)


@pytest.mark.parametrize(
    ("text", "expected"), [("answer<end>more", "answer"), ("answer", "answer"), ("<end>", ""), ("a<en", "a<en")]
)
def test_tokens_are_cut_before_the_marker(text, expected):
    assert cut_at_marker(list(map(ord, text)), ["<end>"], Words()) == list(map(ord, expected))


def test_a_model_stops_at_the_text_of_a_marker_that_is_several_tokens():
    model, tokenizer = tiny_model(pad_token_id=None), byte_level_tokenizer()
    options, prompt = GenerationConfig(do_sample=False, max_new_tokens=12), [11, 12, 13, 14]
    free = LocalGenerator(model, tokenizer)
    free.stop_ids = ()
    ids = free.generate([prompt], options)[0]
    text = tokenizer.decode(ids)
    marker = tokenizer.decode(ids[3:5])
    assert len(tokenizer(marker, add_special_tokens=False)["input_ids"]) > 1
    bound = LocalGenerator(model, tokenizer, end_markers=(marker,))
    bound.stop_ids = ()
    before = text[: text.index(marker)]
    assert bound.stop_texts == (marker,)
    assert tokenizer.decode(bound.generate([prompt], options)[0]) == before
    assert "".join(bound.stream(prompt, options)) == before
