"""Callbacks of the user: `callbacks: package.module:Class`."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from transformers import TrainerCallback

from tunesmith.errors import ConfigError


def load_callbacks(names: Sequence[str]) -> list[TrainerCallback]:
    """Create the user's callbacks, in order.

    Args:
        names: `package.module:Class`; each class is created without arguments.

    Raises:
        ConfigError: See `find_callbacks`.
    """
    return [kind() for kind in find_callbacks(names)]


def find_callbacks(names: Sequence[str]) -> list[type[TrainerCallback]]:
    """Import the classes of the user's callbacks, in order.

    Modules are looked for in the working directory too, so that a file beside the configuration will do.

    Args:
        names: `package.module:Class`.

    Raises:
        ConfigError: A module or class is not there, or is no `transformers.TrainerCallback`.
    """
    return [_find(name) for name in names]


def _find(name: str) -> type[TrainerCallback]:
    module_name, _, class_name = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"callbacks: there is no module {error.name!r}, which {name!r} needs. "
            f"Looked in {here} and in the installed packages."
        ) from error
    except SyntaxError as error:
        raise ConfigError(
            f"callbacks: {name!r} cannot be read: {error.msg} in {error.filename}, line {error.lineno}."
        ) from error
    found = getattr(module, class_name, None)  # not vars(): packages that load lazily have it only when asked
    if not (isinstance(found, type) and issubclass(found, TrainerCallback)):
        known = [
            key
            for key, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, TrainerCallback) and value is not TrainerCallback
        ]
        there = "nothing of that name" if found is None else f"a {type(found).__name__}, not a callback class"
        raise ConfigError(
            f"callbacks: {name!r} names {there} in {module_name}. It must be a subclass of transformers.TrainerCallback"
            f" that takes no arguments; the module has: {', '.join(known) or 'none'}."
        )
    return found
