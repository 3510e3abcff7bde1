import pytest
from tokenizers import AddedToken

from tests.tiny.tokenizers import byte_level_tokenizer, metaspace_tokenizer
from tunesmith.data.chat.literals import MARK
from tunesmith.data.tokenization.pieces import (
    ApartEncoder,
    CuttingEncoder,
    PieceIds,
    SlowEncoder,
    TogetherEncoder,
    build_piece_encoder,
)

CHATML_ROW = ["<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "Paris.<|im_end|>", "\n"]
VICUNA_ROW = ["USER: Hi ASSISTANT:", " Paris.</s>", "USER: And? ASSISTANT:", " No.</s>", ""]


def encode(encoder, row):
    """Return the ids of the pieces of one row as lists."""
    return [piece.tolist() for piece in encoder.encode([row])[0]]


def encoders(tokenizer):
    return ApartEncoder(tokenizer), TogetherEncoder(tokenizer), SlowEncoder(tokenizer)


def test_all_ways_agree_on_a_byte_level_tokenizer():
    apart, together, slow = (encode(encoder, CHATML_ROW) for encoder in encoders(byte_level_tokenizer()))
    assert apart == together == slow


def test_pieces_of_a_metaspace_tokenizer_are_cut_from_the_row():
    tokenizer = metaspace_tokenizer()
    row = encode(TogetherEncoder(tokenizer), VICUNA_ROW)
    joined = [token for piece in row for token in piece]
    assert joined == tokenizer("".join(VICUNA_ROW), add_special_tokens=False)["input_ids"]
    assert [piece[-1] for piece in (row[1], row[3])] == [tokenizer.eos_token_id] * 2
    assert encode(SlowEncoder(tokenizer), VICUNA_ROW) == row
    assert type(build_piece_encoder(tokenizer, [VICUNA_ROW]).inner) is TogetherEncoder


def test_a_token_over_a_border_is_split_there():
    tokenizer = byte_level_tokenizer()
    row = ["a\n", "\nb", ""]
    assert tokenizer.tokenize("a\n\nb") == ["a", "ĊĊ", "b"]
    expected = [tokenizer.encode(piece) for piece in row]
    for encoder in encoders(tokenizer):
        assert encode(encoder, row) == expected, type(encoder).__name__


def test_space_before_a_border_stays_on_its_side():
    tokenizer = byte_level_tokenizer()
    row = ["The capital ", "of France", ""]
    assert tokenizer.encode("The capital of")[-1] != tokenizer.encode("of")[-1]
    expected = [tokenizer.encode(piece) for piece in row]
    for encoder in encoders(tokenizer):
        assert encode(encoder, row) == expected, type(encoder).__name__


def test_split_rows_of_a_metaspace_tokenizer_get_no_space_in_the_middle():
    tokenizer = metaspace_tokenizer()
    row = ["What is 1", "2 + 7", ""]
    pieces = encode(TogetherEncoder(tokenizer), row)
    assert tokenizer.decode([token for piece in pieces for token in piece]) == "What is 12 + 7"
    assert pieces[0] == tokenizer.encode("What is 1", add_special_tokens=False)


def test_special_token_that_swallows_space_keeps_it():
    tokenizer = byte_level_tokenizer()
    tokenizer.add_tokens(
        [AddedToken("<|end|>", rstrip=True, special=True), AddedToken("<|q|>", lstrip=True, special=True)]
    )
    row = ["hi", "Paris<|end|>", "\nnext ", "<|q|>", ""]
    text = "".join(row)
    pieces = encode(TogetherEncoder(tokenizer), row)
    assert [token for piece in pieces for token in piece] == tokenizer.encode(text)
    end, question = tokenizer.convert_tokens_to_ids(["<|end|>", "<|q|>"])
    assert pieces[1][-1] == end
    assert pieces[3] == [question]
    assert type(build_piece_encoder(tokenizer, [row]).inner) is TogetherEncoder


def test_offsets_count_from_the_start_of_each_piece():
    for tokenizer, row in ((byte_level_tokenizer(), CHATML_ROW), (metaspace_tokenizer(), VICUNA_ROW)):
        for encoder in encoders(tokenizer)[:2]:
            for piece, text in zip(encoder.locate(row), row, strict=True):
                assert len(piece.ids) == len(piece.offsets)
                if piece.ids:
                    assert piece.offsets[-1][1] == len(text)
                    assert piece.offsets[0][0] in (0, 1)


def test_offsets_after_a_split_count_from_the_piece_too():
    tokenizer = byte_level_tokenizer()
    pieces = TogetherEncoder(tokenizer).locate(["a\n", "\nb", "c"])
    assert [piece.offsets for piece in pieces] == [[(0, 1), (1, 2)], [(0, 1), (1, 2)], [(0, 1)]]


def test_truncation_and_padding_of_the_file_are_switched_off():
    tokenizer = byte_level_tokenizer()
    tokenizer.backend_tokenizer.enable_truncation(3)
    tokenizer.backend_tokenizer.enable_padding(length=64)
    ((ids,),) = ApartEncoder(tokenizer).encode([["What is the capital of France? Paris, of course."]])
    assert 3 < len(ids) < 64


def test_special_text_is_text_when_the_tokenizer_splits_it():
    tokenizer = byte_level_tokenizer()
    tokenizer.split_special_tokens = True
    (ids,) = encode(ApartEncoder(tokenizer), ["<|im_end|>"])
    assert tokenizer.eos_token_id not in ids


@pytest.mark.parametrize(
    ("tokenizer", "row", "kind"),
    [
        (byte_level_tokenizer(), CHATML_ROW, ApartEncoder),
        (metaspace_tokenizer(), VICUNA_ROW, TogetherEncoder),
    ],
)
def test_the_fastest_right_way_is_taken(tokenizer, row, kind):
    encoder = build_piece_encoder(tokenizer, [row])
    assert isinstance(encoder, CuttingEncoder)
    assert type(encoder.inner) is kind


@pytest.mark.parametrize("tokenizer", [byte_level_tokenizer(), metaspace_tokenizer()], ids=["byte_level", "metaspace"])
def test_a_text_is_cut_at_its_mark_and_reads_as_before(tokenizer):
    control = tokenizer.eos_token
    marked = control[0] + MARK + control[1:]
    encoder = build_piece_encoder(tokenizer, [VICUNA_ROW])
    row = [f"Say {marked} twice: {marked}{marked}.", control, ""]
    prompt, answer, rest = encode(encoder, row)
    assert tokenizer.eos_token_id not in prompt
    assert (answer, rest) == ([tokenizer.eos_token_id], [])
    assert tokenizer.decode(prompt) == f"Say {control} twice: {control}{control}."
    located = encoder.locate(row)
    assert [piece.ids for piece in located] == [prompt, answer, rest]
    starts = [start for start, _ in located[0].offsets]
    assert starts == sorted(starts)
    assert located[0].offsets[-1][1] == len(row[0])


def test_rows_without_marks_pass_through():
    encoder = CuttingEncoder(ApartEncoder(byte_level_tokenizer()))
    plain, marked = ["a", "b", ""], ["a" + MARK + "b", "", ""]
    first, second = ([ids.tolist() for ids in row] for row in encoder.encode([plain, marked]))
    assert first == encode(encoder.inner, plain)
    assert second == [first[0] + first[1], [], []]
    assert encoder.locate(plain) == encoder.inner.locate(plain)
    assert encoder.locate(marked)[0] == PieceIds(second[0], [(0, 1), (2, 3)])
