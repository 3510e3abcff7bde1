"""Tokenizers rebuilt from the vocabulary of a GGUF file.

transformers' own conversion of byte-level vocabularies always cuts text as GPT-2 does, whatever the file says, and
leaves out the context length. Everything is taken from the file here, and the result is checked against it.
"""

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, processors
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from tunesmith.errors import ModelError
from tunesmith.models.gguf.metadata import CONTROL, UNKNOWN, USER_DEFINED, GgufMetadata
from tunesmith.models.gguf.pretokenizers import PreTokenizer, resolve_pre_tokenizer

_NAMED_IDS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
    "sep_token": "tokenizer.ggml.seperator_token_id",  # spelled so in the format
    "mask_token": "tokenizer.ggml.mask_token_id",
}
_END_IDS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")


def build_tokenizer(metadata: GgufMetadata, *, split_special_tokens: bool = False) -> PreTrainedTokenizerBase:
    """Build the tokenizer that a GGUF file describes.

    Args:
        metadata: Of the file.
        split_special_tokens: Read special tokens inside a text as ordinary characters.

    Raises:
        ModelError: The file's kind of vocabulary, or its way of cutting text, is not known.
    """
    kind = metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        tokenizer = _build_byte_level(metadata, split_special_tokens)
    elif kind == "llama":  # sentencepiece with scores; transformers converts these, only names and template are ours
        tokenizer = AutoTokenizer.from_pretrained(
            str(metadata.path.parent), gguf_file=metadata.path.name, split_special_tokens=split_special_tokens
        )
        for name, token in _named_tokens(metadata).items():
            setattr(tokenizer, name, token)
    else:
        raise ModelError(
            f"{metadata.path}: the GGUF file has a vocabulary of kind '{kind}' (tokenizer.ggml.model); 'gpt2' "
            "(byte-level BPE) and 'llama' (sentencepiece) can be used. Use the original Hugging Face folder."
        )
    tokenizer.chat_template = _find_chat_template(metadata)
    tokenizer.model_max_length = int(metadata.get("{arch}.context_length"))
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.padding_side = "right"
    _check_vocabulary(tokenizer, metadata)
    return tokenizer


def end_token_ids(metadata: GgufMetadata) -> list[int]:
    """Return the ids that end an answer: end of text, end of turn and end of message, without repeats."""
    found = (metadata.find(key) for key in _END_IDS)
    return list(dict.fromkeys(int(value) for value in found if value is not None))


def _build_byte_level(metadata: GgufMetadata, split_special_tokens: bool) -> PreTrainedTokenizerFast:
    rules = resolve_pre_tokenizer(str(metadata.get("tokenizer.ggml.pre")), str(metadata.path))
    tokens = metadata.get("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in metadata.get("tokenizer.ggml.merges")]
    backend = Tokenizer(
        models.BPE({token: index for index, token in enumerate(tokens)}, merges, ignore_merges=rules.ignore_merges)
    )
    normalizer = rules.build_normalizer()
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = rules.build()
    backend.decoder = decoders.ByteLevel()
    _add_marked_tokens(backend, metadata)
    template = _template_processing(metadata, rules)
    if template is not None:
        backend.post_processor = template
    control = [token for token, kind in zip(tokens, _token_types(metadata), strict=True) if kind == CONTROL]
    named = _named_tokens(metadata)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        extra_special_tokens=[token for token in control if token not in named.values()],
        split_special_tokens=split_special_tokens,
        add_prefix_space=False,
        **named,
    )


def _token_types(metadata: GgufMetadata) -> list[int]:
    return list(metadata.get("tokenizer.ggml.token_type"))


def _add_marked_tokens(backend: Tokenizer, metadata: GgufMetadata) -> None:
    """Mark control tokens as special, and user-defined ones as whole words that are ordinary text."""
    tokens, types = metadata.get("tokenizer.ggml.tokens"), _token_types(metadata)
    pairs = list(zip(tokens, types, strict=True))
    special = [AddedToken(token, special=True, normalized=False) for token, kind in pairs if kind in {CONTROL, UNKNOWN}]
    ordinary = [AddedToken(token, special=False, normalized=False) for token, kind in pairs if kind == USER_DEFINED]
    backend.add_special_tokens(special)
    backend.add_tokens(ordinary)


def _named_tokens(metadata: GgufMetadata) -> dict[str, str]:
    tokens = metadata.get("tokenizer.ggml.tokens")
    ids = {name: metadata.find(key) for name, key in _NAMED_IDS.items()}
    return {name: tokens[int(index)] for name, index in ids.items() if index is not None}


def _template_processing(metadata: GgufMetadata, rules: PreTokenizer) -> processors.TemplateProcessing | None:
    """Put bos before and eos behind every text where the file or its rule set says so."""
    named, tokens = _named_tokens(metadata), metadata.get("tokenizer.ggml.tokens")
    adds_bos = metadata.find("tokenizer.ggml.add_bos_token")
    adds_bos = rules.adds_bos if adds_bos is None else adds_bos
    bos = named.get("bos_token") if adds_bos else None
    eos = named.get("eos_token") if metadata.find("tokenizer.ggml.add_eos_token") else None
    if bos is None and eos is None:
        return None
    single = [part for part in (bos, "$A", eos) if part is not None]
    second = [f"{part}:1" for part in (bos, "$B", eos) if part is not None]
    marks = [(token, tokens.index(token)) for token in (bos, eos) if token is not None]
    return processors.TemplateProcessing(single=single, pair=[*single, *second], special_tokens=marks)


def _find_chat_template(metadata: GgufMetadata) -> str | dict[str, str] | None:
    default: str | None = metadata.find("tokenizer.chat_template")
    names = metadata.find("tokenizer.chat_templates") or []
    if not names:
        return default
    named = {name: metadata.get(f"tokenizer.chat_template.{name}") for name in names}
    return {"default": default, **named} if default else named


def _check_vocabulary(tokenizer: Any, metadata: GgufMetadata) -> None:
    """Compare every id with the file; a shifted vocabulary would train without any other sign."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    found = tokenizer.convert_ids_to_tokens(list(range(len(tokens))))
    wrong = [index for index, (ours, theirs) in enumerate(zip(found, tokens, strict=True)) if ours != theirs]
    if wrong or len(tokenizer) != len(tokens):
        example = f"; id {wrong[0]} is {found[wrong[0]]!r}, in the file {tokens[wrong[0]]!r}" if wrong else ""
        raise ModelError(
            f"{metadata.path}: the tokenizer made from the GGUF file has {len(tokenizer)} tokens, the file "
            f"{len(tokens)}{example}. Use the original Hugging Face folder of this model."
        )
