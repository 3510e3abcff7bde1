"""Packages that only some runs need: imported when they are used, with a way out when they are absent."""

import importlib
from types import ModuleType

from tunesmith.errors import MissingDependencyError


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import a package that is not part of the base installation.

    Args:
        module: Dotted name of the module, for example `gguf`.
        extra: Extra of this package that installs it, for example `gguf`.
        purpose: What it is needed for; completes "... is needed to", for example `read GGUF files`.

    Raises:
        MissingDependencyError: The package is absent, or is there and cannot be imported.
    """
    top_level = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == top_level:
            raise MissingDependencyError(
                f"The package {top_level!r} is needed to {purpose}, and is not installed. "
                f"Install it with: pip install 'tunesmith[{extra}]'"
            ) from error
        raise MissingDependencyError(
            f"The package {top_level!r} is needed to {purpose}, and cannot be imported: {error}. "
            f"Repair it with: pip install --force-reinstall 'tunesmith[{extra}]'"
        ) from error
    except ImportError as error:
        raise MissingDependencyError(
            f"The package {top_level!r} is needed to {purpose}, but cannot be imported: {error}. "
            f"Repair it with: pip install --force-reinstall 'tunesmith[{extra}]'"
        ) from error
