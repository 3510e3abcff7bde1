"""Every recipe is valid and runs, for two steps, on a toy model, through the command line."""

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.tiny.runs import write_model
from tunesmith.cli.main import main
from tunesmith.config import load_config, parse_command_line
from tunesmith.data.chat.catalog import find_entry
from tunesmith.recipes import DATA_FOLDER, FOLDER, expand_recipe, list_recipes

HAN = re.compile(r"[\u4e00-\u9fff]")


@pytest.fixture(scope="module")
def toy_model(tmp_path_factory) -> Path:
    return write_model(tmp_path_factory.mktemp("toy"), chat_template=find_entry("chatml").source)


def test_there_are_recipes():
    assert "quickstart" in list_recipes()


@pytest.mark.parametrize("name", list_recipes())
def test_a_recipe_is_valid(name, toy_model, tmp_path):
    words = expand_recipe([name, f"model_name_or_path={toy_model}", f"output_dir={tmp_path}"])
    source, overrides = parse_command_line(words)
    config = load_config(source, overrides, purpose="train", environ={})
    assert config.training.do_train
    assert load_config(yaml.safe_load(config.to_yaml()), purpose="read", environ={}) == config


@pytest.mark.parametrize("name", list_recipes())
def test_a_recipe_runs(name, toy_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where no data and no model lie
    out = tmp_path / "out"
    words = ["train", name, f"model_name_or_path={toy_model}", f"output_dir={out}", "max_steps=2", "logging_steps=1"]
    assert main([*words, "max_samples=20", "use_cpu=true", "dataloader_num_workers=0"]) == 0
    log = [json.loads(line) for line in (out / "trainer_log.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [line["loss"] for line in log if line.get("loss") is not None]
    assert len(losses) == 2
    assert all(0 < loss < 20 for loss in losses)
    assert (out / "run.yaml").is_file()
    assert (out / "adapter_model.safetensors").is_file() or (out / "model.safetensors").is_file()


def test_a_name_stands_for_the_file_and_its_rows():
    for words in (["dataset_dir=rows"], ["--dataset_dir", "rows"], ["--dataset-dir=rows"]):
        assert expand_recipe(["quickstart", *words]) == [str(FOLDER / "quickstart.yaml"), *words]
    assert expand_recipe(["quickstart", "max_steps=2"]) == [
        str(FOLDER / "quickstart.yaml"),
        f"dataset_dir={DATA_FOLDER}",
        "max_steps=2",
    ]


@pytest.mark.parametrize("words", [[], ["run.yaml"], ["--stage", "sft"], ["max_steps=2"]])
def test_other_words_are_left_alone(words):
    assert expand_recipe(words) == words


def test_a_file_of_that_name_wins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("quickstart").touch()
    assert expand_recipe(["quickstart"]) == ["quickstart"]


def test_the_quickstart_rows_are_half_english_half_chinese_and_name_the_model():
    rows = json.loads((DATA_FOLDER / "quickstart.json").read_text(encoding="utf-8"))
    chinese = [row for row in rows if HAN.search(row["instruction"])]
    assert len(rows) == 80
    assert len(chinese) == 40
    assert all(row.keys() == {"instruction", "input", "output"} and row["output"].strip() for row in rows)
    assert len({row["instruction"] for row in rows}) == len(rows)
    variables = set(re.findall(r"\{\{(\w+)\}\}", json.dumps(rows)))
    assert variables == {"name", "author"}
    assert sum("{{name}}" in row["output"] for row in rows) >= 40
