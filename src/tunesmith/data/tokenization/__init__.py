"""Text to token ids and to the positions that are learnt."""

from tunesmith.data.tokenization.encoded import EncodedRow, EncodingOptions
from tunesmith.data.tokenization.encoder import Encoder, build_encoder

__all__ = ["EncodedRow", "Encoder", "EncodingOptions", "build_encoder"]
