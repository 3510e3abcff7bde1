"""The content key of encoded rows: everything they depend on, and nothing else.

Paths and names are not part of it: moving a file, or using it under another name, keeps its cache. The code that makes
the rows is: a new version of this package never reads rows that an older one encoded differently.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any

import tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

import tunesmith.data
from tunesmith.data.sources import DatasetSpec
from tunesmith.data.sources.files import content_digest
from tunesmith.runtime.files import file_digest

_NOT_CONTENT = {"name", "files", "notes", "bad_rows", "turn_order_policy"}


def content_key(
    spec: DatasetSpec,
    tokenizer_digest: str,
    *,
    template_fingerprint: str | None,
    options: Mapping[str, Any],
    selection: Mapping[str, Any],
) -> str:
    """Return the content key of a data set as encoded, as hexadecimal text.

    Args:
        spec: The data set; its files are read.
        tokenizer_digest: See `tokenizer_fingerprint`.
        template_fingerprint: Fingerprint of the chat template, if there is one.
        options: Encoding options as JSON values.
        selection: Which rows are taken, as JSON values.
    """
    reading = {field.name: getattr(spec, field.name) for field in fields(spec) if field.name not in _NOT_CONTENT}
    content = {
        "files": [(path.suffix.lower(), content_digest(path)) for path in spec.files],
        "reading": reading,
        "joins_turns": spec.turn_order_policy == "merge",  # `skip` and `error` give the same rows
        "tokenizer": tokenizer_digest,
        "template": template_fingerprint,
        "options": options,
        "selection": selection,
        "code": _code_fingerprint(),
    }
    text = json.dumps(content, sort_keys=True, default=asdict)
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a digest of all that decides which ids a tokenizer gives to a text."""
    digest = hashlib.sha256()
    if isinstance(tokenizer, PreTrainedTokenizerFast):
        # Before the added tokens stand truncation and padding, left there by whoever used the tokenizer last.
        digest.update(tokenizer.backend_tokenizer.to_str().partition('"added_tokens"')[2].encode())
    else:
        digest.update(json.dumps(sorted(tokenizer.get_vocab().items())).encode())
        # A tokenizer written in Python keeps its rules in its files.
        names = (Path(path) for path in tokenizer.init_kwargs.values() if isinstance(path, str))
        for path in sorted(path for path in names if path.is_file()):
            digest.update(file_digest(path).encode())
    settings = {
        "class": type(tokenizer).__name__,
        "special_tokens": {name: str(token) for name, token in tokenizer.special_tokens_map.items()},
        "added": sorted((index, str(token)) for index, token in tokenizer.added_tokens_decoder.items()),
        "split_special_tokens": tokenizer.split_special_tokens,
        "library": tokenizers.__version__,
    }
    digest.update(json.dumps(settings, sort_keys=True).encode())
    return digest.hexdigest()


@cache
def _code_fingerprint() -> str:
    digest = hashlib.sha256()
    folder = Path(tunesmith.data.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
