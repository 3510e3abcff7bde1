"""`tunesmith tune`: find the settings of a run that are best measured on the machine itself."""

from collections.abc import Sequence
from pathlib import Path

from tunesmith.cli import output
from tunesmith.cli.flags import take_count, take_switches, take_value
from tunesmith.config.loading import MOST_BY_HAND
from tunesmith.errors import ConfigError, TrainingError

HELP = """
usage: tunesmith tune io FILE [--step-seconds S | --model] [--workers 0,1,2] [--prefetch 2,4] [--batches N]
                              [--repeats N] [--json] [--plot PNG] [key=value ...]

Measure how many workers, and how many batches ahead, the data of a run needs on this machine: batches a second, share
of the time spent waiting, processor time, memory and crashes of each combination, and the lines to paste into the
configuration. A run with `dataloader_num_workers: auto` finds this out by itself; this shows the whole table.

  tunesmith tune io run.yaml                    against something that takes as long as the model does
  tunesmith tune io run.yaml --step-seconds 0.2   as if the model took 0.2 s for a micro-batch
  tunesmith tune io run.yaml --model            against the model itself
  tunesmith tune io run.yaml --workers 0,2,4,8 --prefetch 2,8 --repeats 5
  tunesmith tune io run.yaml --json --plot io.png

The time of the model is taken from the log of an earlier run in output_dir, or else measured on a few batches. Each
combination is measured three times and the median shown, since machines are noisy: a few seconds each, or --batches
micro-batches. Nothing is written to output_dir.
"""


def run(arguments: Sequence[str]) -> int:
    """Measure, and print the table."""
    words = list(arguments)
    if not words or words[0] != "io":
        raise ConfigError("What should be tuned? There is one thing: tunesmith tune io FILE")
    switches, words = take_switches(words[1:], ["--json", "--model"])
    seconds, words = take_value(words, "--step-seconds")
    workers, words = take_value(words, "--workers")
    prefetch, words = take_value(words, "--prefetch")
    batches, words = take_count(words, "--batches")
    repeats, words = take_count(words, "--repeats")
    plot, words = take_value(words, "--plot")
    if seconds is not None and "--model" in switches:
        raise ConfigError("--step-seconds gives the time of the model and --model runs it; give one of them.")
    step_seconds = None if seconds is None else _parse_seconds(seconds)
    target = None if plot is None else Path(plot)
    numbers = None if workers is None else _parse_numbers("--workers", workers, least=0)
    aheads = (2, 4) if prefetch is None else _parse_numbers("--prefetch", prefetch, least=1)

    from tunesmith.config import load_config, parse_command_line
    from tunesmith.recipes import expand_recipe

    source, overrides = parse_command_line(expand_recipe(words))
    config = load_config(source, overrides, purpose="train")
    from tunesmith.training.io.tuning import TuningOptions, check_picture, draw_trials, tune_io

    if target is not None:
        check_picture(target)

    options = TuningOptions(
        step_seconds=step_seconds,
        uses_model="--model" in switches,
        workers=numbers,
        prefetch=aheads,
        num_batches=batches,
        repeats=repeats or 3,
    )
    report = tune_io(config, options)
    if "--json" in switches:
        output.show_json(report.to_dict(), indent=2)
    else:
        output.show_text(report.render())
    if target is not None:  # after the table, which a disk that is full by now must not cost
        draw_trials(report.trials, target)
    return 0 if report.recommended is not None else TrainingError.exit_code


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ConfigError(f"--step-seconds is {text!r}; allowed is a number of seconds, such as 0.2.")
    return seconds


def _parse_numbers(flag: str, text: str, least: int) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and least <= int(part) <= MOST_BY_HAND for part in parts):
        allowed = f"whole numbers from {least} to {MOST_BY_HAND}, with commas between them"
        raise ConfigError(f"{flag} is {text!r}; allowed are {allowed}.")
    return tuple(dict.fromkeys(map(int, parts)))
