"""Toy tokenizers of the two kinds in use: byte-level BPE (GPT-2, Qwen, Llama 3) and metaspace BPE (Llama 2, Gemma)."""

from functools import lru_cache

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CORPUS = [
    "The capital of France is Paris. What is 12 + 7? It is 19.",
    "user assistant system You are a helpful assistant. Hello, world!\n\n1. first\n2. second\n",
    "### Instruction:\nWrite a short poem.\n\n### Response:\nRoses are red, violets are blue.",
    "你好，世界。我是一个助手。请问今天天气怎么样？很好，谢谢。",
    "def add(a, b):\n    return a + b\n",
] * 4

CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

# The split rule of GPT-4 and its descendants, single digits apart.
BYTE_LEVEL_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@lru_cache
def _byte_level_backend(specials: tuple[str, ...], vocab_size: int) -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(BYTE_LEVEL_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in specials],
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer.to_str()


def byte_level_tokenizer(
    *, extra_specials: tuple[str, ...] = (), chat_template: str | None = None, vocab_size: int = 420
) -> PreTrainedTokenizerFast:
    """ChatML-style: eos `<|im_end|>` (2), pad `<|endoftext|>` (0), no bos; every text round-trips."""
    backend = Tokenizer.from_str(_byte_level_backend(CHATML_TOKENS + extra_specials, vocab_size))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=4096,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = chat_template
    return tokenizer


@lru_cache
def _metaspace_backend(vocab_size: int) -> str:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    byte_tokens = [f"<0x{value:02X}>" for value in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<unk>", "<s>", "</s>", *byte_tokens],
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    state = tokenizer.to_str()
    rebuilt = Tokenizer.from_str(state)
    return rebuilt.to_str()


def metaspace_tokenizer(*, chat_template: str | None = None, vocab_size: int = 520) -> PreTrainedTokenizerFast:
    """Llama-2-style: bos `<s>` (1), eos `</s>` (2), a space is put before each text, pad is eos."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_metaspace_backend(vocab_size)),
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="</s>",
        model_max_length=4096,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = chat_template
    return tokenizer
