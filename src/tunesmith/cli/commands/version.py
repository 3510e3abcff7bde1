"""`tunesmith version`: print the version."""

from collections.abc import Sequence

import tunesmith
from tunesmith.cli import output

HELP = """
usage: tunesmith version

Print the version of the program. `tunesmith env` prints those of the libraries too.
"""


def run(arguments: Sequence[str]) -> int:
    """Print the version."""
    del arguments
    output.show_text(f"tunesmith {tunesmith.__version__}")
    return 0
