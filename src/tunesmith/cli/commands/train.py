"""`tunesmith train`: train a model from a file, flags, or both."""

from collections.abc import Sequence

HELP = """
usage: tunesmith train [FILE | RECIPE] [key=value ...] [--key value ...]

Train a model. FILE is YAML or JSON; settings given as key=value, --key value or --key=value win over it, and
the environment (TUNESMITH_<KEY>) stands between the two. Without a file all settings come from the command
line. RECIPE is the name of a recipe that ships with the program: quickstart, rm, dpo or kto.

  tunesmith train run.yaml
  tunesmith train run.yaml learning_rate=1e-4 output_dir=outputs/second
  tunesmith train --model_name_or_path PATH --dataset alpaca_zh --stage sft --output_dir outputs/first
  tunesmith train run.yaml --stage sft          the file's sft_args: section on top of its shared keys

Several devices of this machine are used at once; several machines: start it with torchrun on each.

  tunesmith config check run.yaml               every problem of a file, without training
  tunesmith config show run.yaml                every value and where it came from
  tunesmith config new sft                      a commented file to start from

All settings are described in docs/options.md.
"""


def run(arguments: Sequence[str]) -> int:
    """Check the whole configuration, then start the run: here, or in one process per device."""
    from tunesmith.config import load_config, parse_command_line
    from tunesmith.recipes import expand_recipe

    words = expand_recipe(arguments)
    source, overrides = parse_command_line(words)
    config = load_config(source, overrides, purpose="train")
    from tunesmith.training.launch import launch

    return launch(config, words)
