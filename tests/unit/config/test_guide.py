"""What docs/configuration.md shows is true."""

import re
from pathlib import Path

import pytest

import tunesmith
from tunesmith.config import load_config
from tunesmith.config.files import parse_yaml

GUIDE = (Path(tunesmith.__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)


@pytest.mark.parametrize("text", BLOCKS)
def test_files_in_the_guide_load(text):
    load_config(parse_yaml(text, "guide.yaml").values, environ={}, purpose="read")


def test_the_python_in_the_guide_runs(folder):
    (folder / "run.yaml").write_text("model_name_or_path: ./model\ndataset: identity\noutput_dir: out\n")
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    assert names["config"].training.learning_rate == 0.0001
    assert names["config"].origin("learning_rate").where == "learning_rate=..."


def test_the_problems_in_the_guide_are_said_so(folder, problems):
    shown = re.search(r"```text\nerror: (.*?)```", GUIDE, re.DOTALL)[1].splitlines()
    found = problems(learning_rat=1e-4, lora_rank="eight", deepspeed="ds.json")
    assert [text.partition(": ")[2].replace("'", "") for text in found] == [text.partition(": ")[2] for text in shown]


def test_the_notes_in_the_guide_are_said_so(load):
    shown = re.findall(r"^note: (.*)$", GUIDE, re.MULTILINE)
    assert set(shown) == set(load(temperature=0.3, save_steps=500, save_strategy="epoch").notes())
