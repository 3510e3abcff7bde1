"""`tunesmith export`: merge adapters into a model and write a folder that stands alone."""

from collections.abc import Sequence

from tunesmith.cli import output
from tunesmith.cli.model_arguments import expand_model_arguments

HELP = """
usage: tunesmith export MODEL [--adapter ADAPTER ...] OUT [key=value ...]
       tunesmith export FILE [key=value ...]

Merge adapters into a model and write a folder that any program reads that reads Hugging Face models: weights in
shards, tokenizer, chat template, generation configuration. The merge is computed in float32 and rounded at the end,
checked against the model with its adapters, and checked again after reloading the folder. MODEL may be the folder
of an adapter, which names its model itself, or a GGUF file, which is thereby converted. A reward model is written as
a sequence classifier with its score head. FILE is a configuration file with model_name_or_path,
adapter_name_or_path and export_dir.

  tunesmith export outputs/quickstart merged
  tunesmith export models/smollm2-135m-instruct --adapter outputs/quickstart merged
  tunesmith export model.Q8_0.gguf converted infer_dtype=bfloat16
  tunesmith export outputs/qat-run compressed --quantize
  tunesmith export export.yaml export_size=2

Several adapters are merged one after the other, or put together by peft first (adapter_combination, adapter_weights,
adapter_density):

  tunesmith export model --adapter a --adapter b both adapter_combination=dare_ties adapter_weights=0.7,0.5

Settings: export_dir (OUT), export_size (largest file in GB), export_device, infer_dtype (type of the weights; the
one the model was stored in by default), template, quantize (write compressed weights, in the scheme of qat).
"""

_FLAGS = {"--adapter": "adapter_name_or_path"}


def run(arguments: Sequence[str]) -> int:
    """Export the model and say what was written."""
    from tunesmith.config import load_config, parse_command_line

    words = expand_model_arguments(arguments, positional=("model_name_or_path", "export_dir"), flags=_FLAGS)
    source, overrides = parse_command_line(words)
    config = load_config(source, overrides, purpose="export")
    from tunesmith.export.merge import export_model

    report = export_model(config)
    output.show_text(f"Written to {report.folder}: {report.num_parameters:,} parameters in {report.dtype}.")
    if report.merge_difference is not None:
        output.show_text(f"Merged, and equal to the model with adapters (difference {report.merge_difference:.1e}).")
    output.show_text(f"Reloaded, and equal to the model in memory (difference {report.reload_difference:.1e}).")
    if report.compressed is not None:
        output.show_text(f"Compressed to {report.compressed}, and loaded again with the same logits.")
    if report.is_reward:
        output.show_text(
            "It is a reward model: AutoModelForSequenceClassification loads it, `tunesmith score` runs it."
        )
        return 0
    output.show_text(f"Answers end at: {', '.join(report.end_markers) or 'no token: set eos_token in the tokenizer'}.")
    return 0
