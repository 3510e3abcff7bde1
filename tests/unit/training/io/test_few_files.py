import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny.runs import write_dataset, write_model

ROOT = Path(__file__).parents[4]


@pytest.mark.slow
@pytest.mark.processes
def test_600_files_are_trained_on_with_four_workers_where_256_may_be_open(tmp_path):
    write_model(tmp_path / "model")
    write_dataset(tmp_path / "data")
    (tmp_path / "data" / "many").mkdir()
    for number in range(600):
        row = {"instruction": f"Say {number}.", "input": "", "output": f"{number}"}
        (tmp_path / "data" / "many" / f"{number:03}.json").write_text(json.dumps([row]), encoding="utf-8")
    (tmp_path / "data" / "dataset_info.json").write_text(json.dumps({"many": {"file_name": "many"}}), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.training.io.few_files", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "steps 12, rows 600, open " in done.stdout
    # 16 batches ahead of four workers need some 850 descriptors, so they are shared by name, as plan and log say.
    assert "and 256 are allowed: batches are shared through named files of shared memory." in done.stderr
