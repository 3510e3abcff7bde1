"""`tunesmith models`: what a model is, before it is downloaded whole or loaded."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tunesmith.cli import output
from tunesmith.cli.actions import run_action
from tunesmith.cli.model_arguments import expand_model_arguments

if TYPE_CHECKING:
    from tunesmith.config import RunConfig

HELP = """
usage: tunesmith models inspect MODEL [--adapter ADAPTER ...] [key=value ...]

inspect  Show what a model is without loading its weights: family and layers, attention, the names that lora_target
         takes, vocabulary and chat template, limits, and weights by group. MODEL is a folder, a GGUF file, a hub id
         (its small files alone are fetched), or the folder of an adapter, of which rank, targets and base are shown.

  tunesmith models inspect models/smollm2-135m-instruct
  tunesmith models inspect outputs/quickstart
"""

_FLAGS = {"--adapter": "adapter_name_or_path"}


def run(arguments: Sequence[str]) -> int:
    """Run one of the actions and return the exit code."""
    return run_action(arguments, _ACTIONS, HELP)


def _inspect(arguments: list[str]) -> int:
    from tunesmith.config import load_config, parse_command_line

    words = expand_model_arguments(arguments, positional=("model_name_or_path",), flags=_FLAGS)
    source, overrides = parse_command_line(words)
    config = load_config(source, overrides, purpose="generate")
    from tunesmith.models.inspection import inspect_model

    inspection = inspect_model(config)
    output.show_text(inspection.render())
    for name, value in _describe_tokenizer(config, inspection.rows):
        output.show_text(f"{name}: {value}")
    return 0


def _describe_tokenizer(config: "RunConfig", rows: int) -> list[tuple[str, str]]:
    from tunesmith.data.chat import resolve_template
    from tunesmith.errors import TemplateError
    from tunesmith.inference.load import load_run_tokenizer

    tokenizer = load_run_tokenizer(config)
    spare = rows - len(tokenizer)
    room = f"{spare:,} rows to spare" if spare >= 0 else f"{-spare:,} more than the model has rows"
    facts = [("tokenizer", f"{type(tokenizer).__name__}, {len(tokenizer):,} tokens ({room})")]
    specials = ", ".join(
        f"{name.removesuffix('_token')} {token}" for name, token in tokenizer.special_tokens_map.items()
    )
    facts.append(("special tokens", specials or "none"))
    try:
        template = resolve_template(config.data, tokenizer)
    except TemplateError as error:
        return [*facts, ("template", str(error))]
    markers = " ".join(template.end_markers) or "no token"
    return [*facts, ("template", f"{template.name}; an answer ends at {markers}")]


_ACTIONS: Mapping[str, Callable[[list[str]], int]] = {"inspect": _inspect}
