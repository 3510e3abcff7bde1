"""`tunesmith quickstart`: train the quickstart recipe and show the same questions answered before and after."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tunesmith.cli import output
from tunesmith.errors import ConfigError, ConfigProblem

if TYPE_CHECKING:
    from tunesmith.config import RunConfig

HELP = """
usage: tunesmith quickstart [key=value ...] [--key value ...]

Train the recipe `quickstart` (a small model learns its name, its maker and good manners, in English and Chinese) and
print three questions answered before and after training. `make quickstart` in a checkout fetches the model first;
with another model: tunesmith quickstart model_name_or_path=FOLDER

  tunesmith quickstart
  tunesmith quickstart row_variables.name=Ada row_variables.author="Ada's friends"
"""

QUESTIONS = ("Who are you?", "你是谁？", "Thank you for your help!")
ANSWER_TOKENS = 64


def run(arguments: Sequence[str]) -> int:
    """Ask, train, ask again, and show both."""
    from tunesmith.config import load_config, parse_command_line
    from tunesmith.recipes import expand_recipe

    words = expand_recipe(["quickstart", *arguments])
    source, overrides = parse_command_line(words)
    try:
        config = load_config(source, overrides, purpose="train")
    except ConfigError as error:
        if any(word.removeprefix("--").startswith("model_name_or_path") for word in arguments):
            raise
        hint = ConfigProblem("quickstart", "`make quickstart` in a checkout fetches the recipe's model first.")
        raise ConfigError([*error.problems, hint]) from error
    from tunesmith.training.launch import launch

    before = _answer_questions(_without_training(config))
    exit_code = launch(config, words)
    if exit_code != 0:
        return exit_code
    after = _answer_questions(_with_training(config))
    output.show_text()
    output.show_table(
        "The same questions before and after training",
        ("question", "before", "after"),
        zip(QUESTIONS, before, after, strict=True),
    )
    folder = config.training.output_dir
    output.show_text(f"The adapter, the log and the plot of the loss are in {folder}.")
    output.show_text(f"Talk to it: tunesmith chat {folder}")
    return 0


def _answer_questions(config: "RunConfig") -> list[str]:
    """Answer greedily: whatever differs between two calls is the model."""
    from tunesmith.data.records import Message
    from tunesmith.inference.conversation import ChatSession
    from tunesmith.inference.load import load_generator

    loaded = load_generator(config)
    options = replace(loaded.options.greedy(), max_new_tokens=ANSWER_TOKENS)
    session = ChatSession(loaded.generator, loaded.tokenizer, loaded.template, options)
    prompts = [session.prompt_ids([Message("user", question)]) for question in QUESTIONS]
    answers = loaded.generator.generate(prompts, options)
    return [str(loaded.tokenizer.decode(answer, skip_special_tokens=True)).strip() for answer in answers]


def _without_training(config: "RunConfig") -> "RunConfig":
    return replace(config, adapter=replace(config.adapter, finetuning_type="full"))


def _with_training(config: "RunConfig") -> "RunConfig":
    folder = str(config.training.output_dir)
    if config.adapter.finetuning_type == "lora":
        adapters = (*config.adapter.adapter_name_or_path, folder)
        return replace(config, adapter=replace(config.adapter, adapter_name_or_path=adapters))
    return replace(config, model=replace(config.model, model_name_or_path=folder))
