"""The job in TRL: rows that are prompts and completions already, through what `SFTTrainer` does with its data set."""

from typing import Any

from benchmarks.preprocess_contestants.stopwatch import PreprocessJob, Stopwatch


def main() -> None:
    """Prepare the rows and print the measurements."""
    job = PreprocessJob.from_command_line()
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig
    from trl import SFTConfig, SFTTrainer

    stopwatch = Stopwatch()
    original = SFTTrainer._prepare_dataset

    def timed(*args: Any, **kwargs: Any) -> Any:
        with stopwatch.running():
            return original(*args, **kwargs)

    SFTTrainer._prepare_dataset = timed
    tokenizer = AutoTokenizer.from_pretrained(job.tokenizer)
    shape = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    with stopwatch.running():
        rows = load_dataset("json", data_files=job.conversations, split="train", cache_dir=f"{job.folder}/datasets")
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_config(shape),
        args=SFTConfig(
            output_dir=f"{job.folder}/output",
            max_length=job.cutoff_len,
            use_cpu=True,
            bf16=False,
            report_to="none",
            gradient_checkpointing=False,
        ),
        train_dataset=rows,
        processing_class=tokenizer,
    )
    prepared = trainer.train_dataset.with_format("numpy")
    tokens = sum(len(row["input_ids"]) for row in prepared)
    trained = sum(int((row["labels"] != -100).sum()) for row in prepared)
    stopwatch.report(rows=len(prepared), tokens=tokens, trained_tokens=trained)


if __name__ == "__main__":
    main()
