"""The program on a console that is not one of UTF-8, in a process of its own: the console is set when Python starts."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.tiny.runs import write_model
from tests.unit.data.runs import write_sets
from tunesmith.cli.main import main

COMMANDS = (
    "preview run.yaml --json --random 4",
    "preview run.yaml --row 1",
    "data report run.yaml",
    "config show run.yaml --changed",
    "train run.yaml",
)
_ALL = """
import sys
sys.modules["hqq"] = None  # its import has PyTorch read files of its own in the encoding of the locale, and fail
from tunesmith.cli.main import main
sys.exit(max(main(words.split()) for words in sys.argv[1:]))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Rows and a data set with text outside of ASCII. (Of files, Python finds none with such a name there.)"""
    write_model(tmp_path / "model")
    rows = [{"instruction": f"né {n} 你好 🙂?", "output": f"ü{n}。"} for n in range(4)]
    write_sets(tmp_path, {"rows": rows})
    (tmp_path / "dataset_info.json").write_text('{"数据": {"file_name": "rows.jsonl"}}', encoding="utf-8")
    (tmp_path / "run.yaml").write_text(
        "model_name_or_path: ./model\nstage: sft\ndataset: 数据\ndataset_dir: .\ndataset_cache_dir: cache\n"
        "output_dir: out\nmax_steps: 1\nuse_cpu: true\nbf16: false\nlora_rank: 2\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.processes
def test_a_console_that_is_not_one_of_utf8_shows_the_same_rows_with_the_same_ids(folder, capsys):
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _ALL, *COMMANDS], env=environment, capture_output=True, timeout=240, check=False
    )
    shown, told = done.stdout.decode("ascii"), done.stderr.decode("ascii")
    assert done.returncode == 0, told
    previews = json.loads(shown.splitlines()[0])
    assert "n\\xe9 0 \\u4f60\\u597d \\U0001f642?" in shown  # the same row, for a person
    assert re.search(r"\\u6570\\u636e +train +4 +4 +0", told)  # the plan of the run, and its data set
    assert json.loads((folder / "out" / "train_results.json").read_text(encoding="utf-8"))["train_loss"] > 0
    report = json.loads((folder / "out" / "data_report.json").read_text(encoding="utf-8"))
    assert report["sets"][0]["name"] == "数据"
    assert main([*COMMANDS[0].split(), "dataset_cache_dir=elsewhere"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0]) == previews
    texts = [sample["raw"]["instruction"] for preview in previews for sample in preview["samples"]]
    assert texts == [f"né {n} 你好 🙂?" for n in range(4)]
