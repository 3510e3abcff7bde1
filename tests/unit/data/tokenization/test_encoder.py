import pytest

from tests.tiny.tokenizers import byte_level_tokenizer
from tests.unit.data.chat.conversations import template_of
from tunesmith.data.tokenization import EncodingOptions, build_encoder
from tunesmith.data.tokenization.conversation import ConversationEncoder
from tunesmith.data.tokenization.document import DocumentEncoder
from tunesmith.errors import TemplateError


def test_stage_chooses_the_encoder():
    tokenizer = byte_level_tokenizer()
    template = template_of("chatml", tokenizer)
    assert isinstance(build_encoder(tokenizer, template, EncodingOptions("sft", 8)), ConversationEncoder)
    assert isinstance(build_encoder(tokenizer, template, EncodingOptions("pt", 8)), DocumentEncoder)


def test_conversations_need_a_template():
    with pytest.raises(TemplateError, match="stage sft needs a chat template"):
        build_encoder(byte_level_tokenizer(), None, EncodingOptions("sft", 8))
