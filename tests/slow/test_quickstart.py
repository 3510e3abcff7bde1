"""The quickstart as a user meets it: the real model, the whole run. Some minutes on two cores."""

import io
import re
import sys

import pytest

from tunesmith.cli.main import main

pytestmark = pytest.mark.slow


def test_the_converted_model_knows_the_capital_of_france(smollm2, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("What is the capital of France?\n"))
    assert main(["chat", str(smollm2), "do_sample=false", "max_new_tokens=30"]) == 0
    assert capsys.readouterr().out == "The capital of France is Paris.\n"


def test_the_quickstart_teaches_the_model_its_name(smollm2, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["quickstart", f"model_name_or_path={smollm2}", "row_variables.name=Ada"]) == 0
    shown = capsys.readouterr().out
    before, after = (re.findall(rf"^  {moment}: (.*)$", shown, re.MULTILINE) for moment in ("before", "after"))
    assert not any("Ada" in answer for answer in before)
    assert "Ada" in after[0]
    assert "Ada" in after[1]
    assert re.search(r"[\u4e00-\u9fff]", after[1])
