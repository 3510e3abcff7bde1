"""Text to token ids and to the positions that are learnt."""

from tunesmith.data.tokenization.encoded import EncodedRow, EncodingOptions
from tunesmith.data.tokenization.encoder import Encoder, build_encoder
from tunesmith.data.tokenization.prompts import encode_prompt

__all__ = ["EncodedRow", "Encoder", "EncodingOptions", "build_encoder", "encode_prompt"]
