"""The job in LLaMA-Factory: its `get_dataset`, as its supervised fine-tuning calls it."""

import json
from pathlib import Path

from benchmarks.preprocess_contestants.stopwatch import PreprocessJob, Stopwatch


def main() -> None:
    """Prepare the rows and print the measurements."""
    job = PreprocessJob.from_command_line()
    from llamafactory.data import get_dataset, get_template_and_fix_tokenizer
    from llamafactory.hparams import get_train_args
    from transformers import AutoTokenizer

    folder = Path(job.folder)
    (folder / "dataset_info.json").write_text(json.dumps({"rows": {"file_name": job.rows}}), encoding="utf-8")
    model_args, data_args, training_args, _, _ = get_train_args(
        {
            "stage": "sft",
            "do_train": True,
            "model_name_or_path": job.tokenizer,
            "dataset_dir": str(folder),
            "dataset": "rows",
            "template": job.template,
            "cutoff_len": job.cutoff_len,
            "output_dir": str(folder / "output"),
            "cache_dir": str(folder / "cache"),
            "overwrite_cache": True,
            "use_cpu": True,
            "report_to": "none",
        }
    )
    tokenizer = AutoTokenizer.from_pretrained(job.tokenizer)
    template = get_template_and_fix_tokenizer(tokenizer, data_args)
    stopwatch = Stopwatch()
    with stopwatch.running():
        module = get_dataset(template, model_args, data_args, training_args, stage="sft", tokenizer=tokenizer)
    prepared = module["train_dataset"].with_format("numpy")
    tokens = sum(len(row["input_ids"]) for row in prepared)
    trained = sum(int((row["labels"] != -100).sum()) for row in prepared)
    stopwatch.report(rows=len(prepared), tokens=tokens, trained_tokens=trained)


if __name__ == "__main__":
    main()
