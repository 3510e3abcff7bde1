"""`tunesmith version`: print the version."""

from collections.abc import Sequence

import tunesmith
from tunesmith.cli import output
from tunesmith.cli.flags import check_no_words

HELP = """
usage: tunesmith version

Print the version of the program. `tunesmith env` prints those of the libraries too.
"""


def run(arguments: Sequence[str]) -> int:
    """Print the version."""
    check_no_words("version", arguments)
    output.show_text(f"tunesmith {tunesmith.__version__}")
    return 0
