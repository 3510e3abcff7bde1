"""badam prints the names of a block each time it changes; they belong into the log.

Seen with badam 1.4 (block_optim.print_rank_0, also at `verbose=0`). Drop this file when it uses a logger.
"""

import logging
from importlib import import_module

logger = logging.getLogger(__name__)


def log_instead_of_printing() -> None:
    """Send badam's messages to the log."""
    vars(import_module("badam.block_optim"))["print_rank_0"] = _log


def _log(*words: object) -> None:
    logger.debug("%s", " ".join(map(str, words)))
