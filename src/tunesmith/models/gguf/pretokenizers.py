"""How text is cut into words before BPE, by the name a GGUF file gives for it (`tokenizer.ggml.pre`).

A GGUF file stores no rules, only the name of a rule set known to llama.cpp. Cutting with another set gives other ids
for the same text, mostly in numbers and line breaks, without any error.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tokenizers import Regex, normalizers, pre_tokenizers

from tunesmith.errors import ModelError

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_AFTER_WORDS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SINGLE_DIGIT_WORDS = r"\p{N}"
_LLAMA3_WORDS = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _AFTER_WORDS
_QWEN2_WORDS = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _AFTER_WORDS
_DEEPSEEK3_WORDS = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    (
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN_WORDS = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}" + _CASED_REST
)
_GPT4O_WORDS = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?|\p{{N}}{{1,3}}" + _CASED_REST
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """The rules of one name."""

    patterns: tuple[str, ...]
    """Applied one after the other; every match and every gap becomes a word of its own."""

    ignore_merges: bool = False
    """Whether a word that is in the vocabulary is taken whole, whatever the merges say."""

    adds_bos: bool = False
    """Whether a beginning token is put before a text when the file does not say."""

    normalizer: str | None = field(default=None)
    """Unicode form that text is brought into first, as the original tokenizers of the family do."""

    def build(self) -> pre_tokenizers.PreTokenizer:
        """Build the rules for the tokenizers library, bytes mapped to letters at the end."""
        splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.patterns]
        return pre_tokenizers.Sequence(
            [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False, trim_offsets=True)]
        )

    def build_normalizer(self) -> normalizers.Normalizer | None:
        """Build the Unicode normaliser, if the family has one."""
        return normalizers.NFC() if self.normalizer == "NFC" else None


_GPT2 = PreTokenizer((_GPT2_WORDS,))
_SINGLE_DIGITS = PreTokenizer((_SINGLE_DIGIT_WORDS, _GPT2_WORDS))
_LLAMA3 = PreTokenizer((_LLAMA3_WORDS,), ignore_merges=True, adds_bos=True)
_LLAMA3_MERGING = PreTokenizer((_LLAMA3_WORDS,))
_QWEN2 = PreTokenizer((_QWEN2_WORDS,), normalizer="NFC")
_QWEN2_PLAIN = PreTokenizer((_QWEN2_WORDS,))

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    "gpt-2": _GPT2,
    "phi-2": _GPT2,
    "mpt": _GPT2,
    "olmo": _GPT2,
    "jais": _GPT2,
    "trillion": _GPT2,
    "granite-docling": _GPT2,
    "smollm": _SINGLE_DIGITS,
    "starcoder": _SINGLE_DIGITS,
    "refact": _SINGLE_DIGITS,
    "command-r": _SINGLE_DIGITS,
    "codeshell": _SINGLE_DIGITS,
    "exaone": _SINGLE_DIGITS,
    "minerva-7b": _SINGLE_DIGITS,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama-bpe": _LLAMA3,
    "falcon3": _LLAMA3,
    "dbrx": _LLAMA3_MERGING,
    "smaug-bpe": _LLAMA3_MERGING,
    "glm4": _LLAMA3_MERGING,
    "chatglm-bpe": _LLAMA3_MERGING,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2_PLAIN,
    "stablelm2": _QWEN2_PLAIN,
    "hunyuan": _QWEN2_PLAIN,
    "deepseek-v3": PreTokenizer(_DEEPSEEK3_WORDS),
    "hunyuan-dense": PreTokenizer(_DEEPSEEK3_WORDS),
    "tekken": PreTokenizer((_TEKKEN_WORDS,), ignore_merges=True, adds_bos=True),
    "gpt-4o": PreTokenizer((_GPT4O_WORDS,)),
    "llama4": PreTokenizer((_GPT4O_WORDS,)),
}


def resolve_pre_tokenizer(name: str, where: str) -> PreTokenizer:
    """Return the rules of a name.

    Raises:
        ModelError: The name is not known here; another rule set would train on wrong ids in silence.
    """
    if name not in PRE_TOKENIZERS:
        raise ModelError(
            f"{where}: the GGUF file cuts text with '{name}' (tokenizer.ggml.pre), whose rules are not known here. "
            f"Known are: {', '.join(sorted(PRE_TOKENIZERS))}. Use the original Hugging Face folder of this model."
        )
    return PRE_TOKENIZERS[name]
