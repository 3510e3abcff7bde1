"""Commands that are made of actions, such as `tunesmith data report`."""

from collections.abc import Callable, Mapping, Sequence

from tunesmith.cli import output
from tunesmith.config.suggestions import render_suggestion
from tunesmith.errors import ConfigError

Actions = Mapping[str, Callable[[list[str]], int]]
"""What each action does with the words after it; returns the exit code."""


def run_action(arguments: Sequence[str], actions: Actions, help_text: str) -> int:
    """Run the action that the first word names and return the exit code; without words, show the help.

    Raises:
        ConfigError: There is no such action.
    """
    if not arguments:
        output.show_text(help_text.strip())
        return 0
    action, rest = arguments[0], list(arguments[1:])
    if action not in actions:
        hint = render_suggestion(action, actions)
        raise ConfigError(f"there is no action '{action}'; allowed is one of {', '.join(actions)}.{hint}")
    return actions[action](rest)
