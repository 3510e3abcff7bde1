"""The job here: `prepare_data` with an empty cache."""

from benchmarks.preprocess_contestants.stopwatch import PreprocessJob, Stopwatch


def main() -> None:
    """Prepare the rows and print the measurements."""
    job = PreprocessJob.from_command_line()
    from transformers import AutoTokenizer

    from tunesmith import load_config
    from tunesmith.data import prepare_data
    from tunesmith.data.chat import resolve_template

    config = load_config(
        {
            "stage": "sft",
            "model_name_or_path": "some/model",
            "dataset": "rows",
            "dataset_info": {"rows": {"file_name": job.rows}},
            "template": job.template,
            "cutoff_len": job.cutoff_len,
            "dataset_cache_dir": job.folder,
            "output_dir": f"{job.folder}/output",
        }
    )
    tokenizer = AutoTokenizer.from_pretrained(job.tokenizer)
    stopwatch = Stopwatch()
    with stopwatch.running():
        data = prepare_data(config, tokenizer, resolve_template(config.data, tokenizer))
    (rows,) = data.report.sets
    stopwatch.report(rows=rows.examples, tokens=rows.tokens, trained_tokens=rows.trained_tokens)


if __name__ == "__main__":
    main()
