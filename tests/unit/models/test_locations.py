"""Telling folders, files and hub ids apart."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tunesmith.config import ModelConfig
from tunesmith.errors import MissingDependencyError, ModelError
from tunesmith.models import load_tokenizer, locations
from tunesmith.models.locations import resolve_adapter, resolve_location, resolve_with_adapters


def settings(name: str | None, **more) -> ModelConfig:
    return ModelConfig(model_name_or_path=name, **more)


def test_folder_gguf_adapter_and_hub_are_told_apart(tmp_path):
    for name, file in {"model": "config.json", "adapter": "adapter_config.json", "quantised": "a.gguf"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}", encoding="utf-8")
    kinds = [resolve_location(settings(str(tmp_path / name))).kind for name in ("model", "adapter", "quantised")]
    assert kinds == ["folder", "adapter", "gguf"]
    assert resolve_location(settings(str(tmp_path / "quantised" / "a.gguf"))).kind == "gguf"
    hub = resolve_location(settings("org/name"))
    assert (hub.kind, hub.source, hub.path) == ("hub", "org/name", None)


@pytest.mark.parametrize("name", ["/no/such/folder", "./nothing", "~/nothing-here", "missing.gguf", "a/b/c"])
def test_path_that_does_not_exist_is_refused(name):
    with pytest.raises(ModelError, match=rf"model_name_or_path: {name} does not exist"):
        resolve_location(settings(name))


def test_folder_that_is_no_model_says_what_it_found(tmp_path):
    (tmp_path / "notes.txt").write_text("", encoding="utf-8")
    with pytest.raises(ModelError, match=r"no config\.json.*found: notes\.txt"):
        resolve_location(settings(str(tmp_path)))


def test_file_that_is_no_gguf_is_refused(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match="is a file, but not a GGUF file"):
        resolve_location(settings(str(tmp_path / "model.safetensors")))


def test_folder_with_several_gguf_files_asks_which(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(ModelError, match=r"holds 2 GGUF files \(a\.gguf, b\.gguf\)"):
        resolve_location(settings(str(tmp_path)))


def test_missing_setting_is_named():
    with pytest.raises(ModelError, match="model_name_or_path: is not set"):
        resolve_location(settings(None))


def test_unreachable_hub_id_explains_itself(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match=r"no-such-org/no-such-model \(revision main\) cannot be loaded from Hugging"):
        load_tokenizer(settings("no-such-org/no-such-model"))


def test_without_a_network_the_way_out_is_said(monkeypatch, tmp_path):
    (tmp_path / "org" / "Name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(locations, "find_network_trouble", lambda: "huggingface.co cannot be reached (no route)")
    with pytest.raises(ModelError) as caught:
        load_tokenizer(settings("org/name"))
    assert str(caught.value) == (
        "model_name_or_path: org/name (revision main) is neither a path here nor in the cache, and huggingface.co "
        "cannot be reached (no route). Without a network, fetch it elsewhere (hf download org/name --local-dir "
        "FOLDER), and give the folder. If only this hub is out of reach, set the variable HF_ENDPOINT to the address "
        "of a mirror, or set model_hub: modelscope. Did you mean 'org/Name'?"
    )


@pytest.mark.parametrize(
    ("name", "message"), [("/no/adapter", "does not exist"), (".", r"holds no adapter_config\.json")]
)
def test_adapter_that_is_none_is_refused(name, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=f"adapter_name_or_path: .*{message}"):
        resolve_adapter(settings("org/name"), name)


def test_modelscope_ids_are_downloaded_at_its_own_name_for_main(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    calls = []
    module = ModuleType("modelscope")
    module.snapshot_download = lambda name, **options: calls.append((name, options)) or str(tmp_path)
    monkeypatch.setitem(sys.modules, "modelscope", module)
    location = resolve_location(settings("org/name", model_hub="modelscope", cache_dir="cache"))
    assert (location.kind, location.path) == ("folder", tmp_path)
    assert calls == [("org/name", {"revision": "master", "cache_dir": "cache"})]


def test_modelscope_without_its_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "modelscope", None)
    monkeypatch.setenv("USE_MODELSCOPE_HUB", "1")
    with pytest.raises(MissingDependencyError, match=r"tunesmith\[modelscope\]"):
        resolve_location(settings("org/name"))


def write_adapter(folder: Path, base: str | None = "org/base") -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}), encoding="utf-8")
    return folder


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Stand in for Hugging Face: every id is one adapter folder; returns the questions asked."""
    folder = write_adapter(tmp_path / "snapshot")
    calls = []
    monkeypatch.setattr(
        locations, "snapshot_download", lambda name, **options: calls.append((name, options)) or str(folder)
    )
    locations._snapshot.cache_clear()
    yield folder, calls
    locations._snapshot.cache_clear()


def test_an_adapter_on_the_hub_is_fetched_once_with_the_users_cache_and_token(hub):
    folder, calls = hub
    config = settings("org/name", cache_dir="cache", hf_hub_token="secret", model_revision="v2")
    assert resolve_adapter(config, "org/adapter") == folder
    assert resolve_with_adapters(config, ["org/adapter"]).adapters == (str(folder),)
    ((name, options),) = calls
    assert name == "org/adapter"
    assert (options["cache_dir"], options["token"]) == ("cache", "secret")
    assert "revision" not in options  # that of the model says nothing about another repository
    assert "*/*" in options["ignore_patterns"]  # checkpoints of the run


def test_an_adapter_is_found_in_the_users_cache_without_a_network(tmp_path):
    repository = tmp_path / "cache" / "models--org--cached"
    folder = write_adapter(repository / "snapshots" / ("a" * 40))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40, encoding="utf-8")
    assert resolve_adapter(settings("org/name", cache_dir=str(tmp_path / "cache")), "org/cached") == folder


def test_an_adapter_that_no_hub_has_is_named_as_such(tmp_path):
    message = r"adapter_name_or_path: org/none cannot be loaded from Hugging Face: HF_HUB_OFFLINE is set.*hf_hub_token"
    with pytest.raises(ModelError, match=message):
        resolve_adapter(settings("org/name", cache_dir=str(tmp_path)), "org/none")


def test_a_hub_id_that_is_a_whole_model_is_no_adapter(hub):
    folder, _ = hub
    (folder / "adapter_config.json").unlink()
    with pytest.raises(ModelError, match=r"adapter_name_or_path: org/model holds no adapter_config\.json"):
        resolve_adapter(settings("org/name"), "org/model")


def test_an_adapter_on_modelscope_is_fetched_with_the_users_cache_and_token(tmp_path, monkeypatch):
    folder = write_adapter(tmp_path / "snapshot")
    calls = []
    module = ModuleType("modelscope")
    module.snapshot_download = lambda name, **options: calls.append((name, options)) or str(folder)
    module.HubApi = type("Api", (), {"login": lambda self, token: calls.append(token)})
    monkeypatch.setitem(sys.modules, "modelscope", module)
    config = settings("org/name", model_hub="modelscope", cache_dir="c", ms_hub_token="secret", model_revision="v2")
    assert resolve_adapter(config, "org/adapter") == folder
    assert calls == ["secret", ("org/adapter", {"revision": "master", "cache_dir": "c"})]


def test_an_adapter_as_the_model_brings_its_base_and_comes_first(tmp_path):
    first, second = write_adapter(tmp_path / "first"), write_adapter(tmp_path / "second")
    found = resolve_with_adapters(settings(str(first)), [str(second)])
    assert (found.base.kind, found.base.name) == ("hub", "org/base")
    assert found.adapters == (str(first), str(second))
    nameless = write_adapter(tmp_path / "nameless", base=None)
    with pytest.raises(ModelError, match="nameless does not say what its base model is"):
        resolve_with_adapters(settings(str(nameless)), [])


def test_an_adapter_whose_base_has_moved_says_how_to_name_it(tmp_path):
    adapter = write_adapter(tmp_path / "adapter", base="/no/such/model")
    message = r"adapter \S*adapter belongs to /no/such/model, which does not exist.*adapter_name_or_path to this folder"
    for find in (lambda config: resolve_with_adapters(config, []), load_tokenizer):
        with pytest.raises(ModelError, match=message):
            find(settings(str(adapter)))


def test_an_adapter_whose_settings_are_damaged_is_named(tmp_path):
    adapter = write_adapter(tmp_path / "adapter")
    (adapter / "adapter_config.json").write_text('{"base_model', encoding="utf-8")
    with pytest.raises(ModelError, match=r"adapter_config\.json cannot be read as JSON"):
        resolve_with_adapters(settings(str(adapter)), [])


def test_an_adapter_may_lie_in_a_folder_of_what_is_named(tmp_path):
    inside = write_adapter(tmp_path / "run" / "checkpoint-5")
    config = settings("org/name", adapter_folder="checkpoint-5")
    assert resolve_adapter(config, str(tmp_path / "run")) == inside
    with pytest.raises(ModelError, match=r"holds no adapter_config\.json in checkpoint-7 \(adapter_folder\)"):
        resolve_adapter(settings("org/name", adapter_folder="checkpoint-7"), str(tmp_path / "run"))


def test_of_a_hub_only_the_folder_of_the_adapter_is_fetched(tmp_path, monkeypatch):
    asked = []

    def fetch(name, **options):
        asked.append(options["allow_patterns"])
        write_adapter(tmp_path / "snapshot" / "checkpoint-5")
        return str(tmp_path / "snapshot")

    monkeypatch.setattr(locations, "snapshot_download", fetch)
    config = settings("org/name", adapter_folder="checkpoint-5", cache_dir=str(tmp_path))
    assert resolve_adapter(config, "org/adapter") == tmp_path / "snapshot" / "checkpoint-5"
    assert asked == [["checkpoint-5/*"]]
