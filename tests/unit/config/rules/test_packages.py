from importlib.util import find_spec

import pytest

from tunesmith.config.rules import packages


@pytest.mark.parametrize(
    ("changes", "package"),
    [
        ({"report_to": "neptune"}, "neptune"),
        ({"report_to": ["dagshub", "azure_ml"]}, "dagshub"),
        ({"optim": "grokadamw"}, "grokadamw"),
        ({"optim": "stable_adamw"}, "torch-optimi"),
        ({"plot_loss": True}, "matplotlib"),
        ({"predict_with_generate": True, "val_size": 0.1}, "sacrebleu"),
        ({"model_hub": "modelscope"}, "modelscope"),
    ],
)
def test_a_missing_package_is_named_with_the_way_to_get_it(problems, monkeypatch, changes, package):
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    found = problems(**changes)
    key = next(iter(changes))
    assert found[0].startswith(f"{key}: `{key}: ")
    assert f"needs the package {package}, which is not installed; run `pip install {package}` or change" in found[0]


def test_packages_that_are_there_are_no_problem(problems):
    assert find_spec("matplotlib")
    assert problems(plot_loss=True, report_to="none") == []
    assert problems(report_to="all") == []
