import sys

import pytest

from tunesmith.errors import MissingDependencyError
from tunesmith.runtime.optional import require


def test_an_installed_module_is_returned():
    assert require("json.decoder", "anything", "test").JSONDecoder


def test_a_missing_package_says_what_for_and_how_to_install():
    with pytest.raises(MissingDependencyError) as caught:
        require("no_such_package.sub", "plot", "draw the loss")
    assert str(caught.value) == (
        "The package 'no_such_package' is needed to draw the loss, and is not installed. "
        "Install it with: pip install 'tunesmith[plot]'"
    )
    assert caught.value.exit_code == 7


@pytest.mark.parametrize(
    "code", ["import a_module_that_is_not_there", "raise ImportError('wrong architecture')"], ids=["needs", "broken"]
)
def test_a_package_that_is_there_but_broken_says_why(tmp_path, monkeypatch, code):
    (tmp_path / "broken_package.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingDependencyError, match=r"cannot be imported: .*(a_module_that|wrong architecture)"):
        require("broken_package", "gguf", "read GGUF files")
    assert "broken_package" not in sys.modules
