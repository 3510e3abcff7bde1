import pickle

import pytest

from tests.tiny.tokenizers import byte_level_tokenizer, metaspace_tokenizer
from tests.unit.data.chat.conversations import talk
from tunesmith.data.records import Document
from tunesmith.data.tokenization import EncodingOptions, build_encoder
from tunesmith.errors import DataError

TEXT = "The capital of France is Paris."


def encode(tokenizer, text, **options):
    ((row,),) = build_encoder(tokenizer, None, EncodingOptions("pt", **{"cutoff_len": 512, **options})).encode(
        [Document(text)]
    )
    return row


def test_end_token_closes_and_is_learnt_even_where_it_is_the_padding_token():
    tokenizer = metaspace_tokenizer()
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
    row = encode(tokenizer, TEXT)
    assert row.input_ids[-1] == tokenizer.eos_token_id
    assert row.trained_spans.tolist() == [0, len(row.input_ids)]


def test_start_token_is_put_only_where_the_tokenizer_puts_one():
    from tokenizers.processors import TemplateProcessing

    tokenizer = metaspace_tokenizer()
    assert encode(tokenizer, TEXT).input_ids[0] != tokenizer.bos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    ids = encode(tokenizer, TEXT).input_ids.tolist()
    assert (ids[0], ids.count(1), ids.count(2)) == (1, 1, 1)


def test_document_stays_whole_for_packing_and_loses_its_end_without():
    tokenizer = byte_level_tokenizer()
    whole = encode(tokenizer, TEXT, cutoff_len=8, packing=True)
    assert tokenizer.decode(whole.input_ids) == TEXT + "<|im_end|>"
    cut = encode(tokenizer, TEXT, cutoff_len=8)
    assert cut.input_ids.tolist() == whole.input_ids[:8].tolist()
    assert cut.truncation == {"answer_cut", "end_marker_lost"}
    assert whole.truncation == frozenset()


def test_a_document_that_just_fits_is_whole():
    tokenizer = byte_level_tokenizer()
    size = len(encode(tokenizer, TEXT).input_ids)
    assert encode(tokenizer, TEXT, cutoff_len=size).truncation == frozenset()


def test_a_tokenizer_without_end_token_is_refused():
    tokenizer = byte_level_tokenizer()
    tokenizer.eos_token = None
    with pytest.raises(DataError, match="no end token"):
        build_encoder(tokenizer, None, EncodingOptions("pt", 8))


def test_a_conversation_is_a_mistake_of_the_caller():
    with pytest.raises(TypeError, match="not documents"):
        build_encoder(byte_level_tokenizer(), None, EncodingOptions("pt", 8)).encode([talk("Q", "A")])


def test_an_encoder_survives_pickling():
    encoder = build_encoder(byte_level_tokenizer(), None, EncodingOptions("pt", 64))
    again = pickle.loads(pickle.dumps(encoder))
    assert (
        again.encode([Document(TEXT)])[0][0].input_ids.tolist()
        == encoder.encode([Document(TEXT)])[0][0].input_ids.tolist()
    )
