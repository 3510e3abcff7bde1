"""The least there is to do: `encode_batch_fast` of the tokenizers library on the same text, nothing else timed."""

import json
from pathlib import Path

from benchmarks.preprocess_contestants.stopwatch import PreprocessJob, Stopwatch

BATCH = 1000


def main() -> None:
    """Tokenise the text and print the measurements."""
    job = PreprocessJob.from_command_line()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(job.tokenizer)
    with Path(job.conversations).open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    texts = [tokenizer.apply_chat_template(row["prompt"] + row["completion"], tokenize=False) for row in rows]
    engine = tokenizer.backend_tokenizer
    tokens = 0
    stopwatch = Stopwatch()
    for start in range(0, len(texts), BATCH):
        with stopwatch.running():
            encodings = engine.encode_batch_fast(texts[start : start + BATCH], add_special_tokens=False)
        tokens += sum(min(len(encoding), job.cutoff_len) for encoding in encodings)
    stopwatch.report(rows=len(texts), tokens=tokens, trained_tokens=None)


if __name__ == "__main__":
    main()
