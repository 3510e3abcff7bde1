"""`tunesmith chat`: talk to a model in the terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tunesmith.cli import output
from tunesmith.cli.model_arguments import expand_model_arguments

if TYPE_CHECKING:
    from tunesmith.inference.conversation import ChatSession

HELP = """
usage: tunesmith chat MODEL [--adapter ADAPTER] [--system TEXT] [key=value ...]
       tunesmith chat FILE [key=value ...]

Talk to a model. MODEL is a folder, a GGUF file, a hub id, or the folder of an adapter, which names its model itself.
The chat template is the one saved with the tokenizer, so that the model sees what it was trained on. FILE is a
configuration file with model_name_or_path and, where there is one, adapter_name_or_path.

  tunesmith chat outputs/quickstart
  tunesmith chat models/smollm2-135m-instruct --adapter outputs/quickstart --system "Answer briefly."
  tunesmith chat models/smollm2-135m-instruct do_sample=false max_new_tokens=200
  echo "Who are you?" | tunesmith chat outputs/quickstart

While chatting: /clear forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer. With questions from
a pipe, each line is one turn and only the answers are printed.

Settings: do_sample, temperature, top_p, top_k, max_new_tokens, repetition_penalty, template, infer_dtype and all
others that concern a model (docs/options.md).
"""

_FLAGS = {"--adapter": "adapter_name_or_path", "--system": "default_system"}


def run(arguments: Sequence[str]) -> int:
    """Load the model and answer until there are no more questions."""
    from tunesmith.config import load_config, parse_command_line

    words = expand_model_arguments(arguments, positional=("model_name_or_path",), flags=_FLAGS)
    source, overrides = parse_command_line(words)
    config = load_config(source, overrides, purpose="generate")
    from tunesmith.inference.conversation import ChatSession
    from tunesmith.inference.load import load_generator

    loaded = load_generator(config)
    session = ChatSession(
        loaded.generator, loaded.tokenizer, loaded.template, loaded.options, system=config.data.default_system
    )
    converse(session, is_interactive=output.is_interactive())
    return 0


def converse(session: "ChatSession", *, is_interactive: bool) -> None:
    """Read questions and print answers until the input ends or asks to leave."""
    if is_interactive:
        output.show_text("Type a question. /clear forgets the conversation, /exit leaves, Ctrl-C stops an answer.")
    while (question := output.read_line("\nyou: " if is_interactive else "")) is not None:
        text = question.strip()
        if text in ("/exit", "exit"):
            return
        if text in ("/clear", "clear"):
            session.clear()
            if is_interactive:
                output.show_text("The conversation is forgotten.")
        elif text:
            _answer(session, text, is_interactive=is_interactive)


def _answer(session: "ChatSession", text: str, *, is_interactive: bool) -> None:
    if not is_interactive:
        output.show_pieces(session.answer(text))
        return
    output.show_text("model: ", end="")
    try:
        output.show_pieces(session.answer(text))
    except KeyboardInterrupt:  # stops this answer; at the question it ends the program
        output.show_text("(stopped)")
