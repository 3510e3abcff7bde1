"""Draws preview.svg: what `tunesmith preview` shows of a conversation of two turns, in the colours of a terminal.

Run from the top of a checkout after `make quickstart`: `python docs/figures/preview.py [MODEL_FOLDER]`.
"""

import io
import json
import os
import pty
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.text import Text

MODEL = "models/smollm2-135m-instruct"

TURNS = [
    ("human", "What is the capital of France?"),
    ("gpt", "Paris."),
    ("human", "And of Japan? Answer in Chinese."),
    ("gpt", "东京。"),
]

_FONT_FACES = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""Rich would have a viewer fetch its font from another server."""


def read_preview(model: str) -> str:
    """Return what the command writes to a terminal about the conversation, without the raw row before it."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        rows.write_text(json.dumps([{"conversations": [{"from": who, "value": text} for who, text in TURNS]}]))
        run = Path(folder) / "run.yaml"
        run.write_text(f"model_name_or_path: {model}\ndataset: {rows}\noutput_dir: {folder}/out\n")
        written = _run_in_terminal([sys.executable, "-m", "tunesmith.cli.main", "preview", str(run)])
    return written[written.index("\n}\n") + 3 :]


def _run_in_terminal(command: list[str]) -> str:
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL) as process:  # noqa: S603 - our own command
        os.close(theirs)
        pieces = []
        # A terminal whose other end is closed says so with an error, not with an empty piece.
        with suppress(OSError):
            while piece := os.read(ours, 4096):
                pieces.append(piece)
        os.close(ours)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return b"".join(pieces).decode().replace("\r\n", "\n")


def draw(model: str = MODEL) -> str:
    """Return the picture as SVG."""
    console = Console(record=True, width=76, file=io.StringIO())
    console.print(Text.from_ansi("$ tunesmith preview run.yaml\n" + read_preview(model)))
    return _FONT_FACES.sub("", console.export_svg(title="What is trained is green", unique_id="preview"))


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw(*sys.argv[1:]), encoding="utf-8")
