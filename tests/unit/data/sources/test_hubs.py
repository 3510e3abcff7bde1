import json
import sys
from types import SimpleNamespace

import datasets
import huggingface_hub
import pytest

from tests.unit.data.sources.test_catalog import settings
from tunesmith.config.model import ModelConfig
from tunesmith.data.sources import HubAccess, hubs, load_catalog, read_rows
from tunesmith.errors import DataError, MissingDependencyError

ROWS = [{"text": "one", "extra": {"a": 1}}, {"text": "two", "extra": [2]}]


@pytest.fixture
def repository(tmp_path):
    """A repository with two configurations, one of them with two splits, as it lies on a hub."""
    folder = tmp_path / "repository"
    for name, rows in (("en/train.jsonl", ROWS), ("en/test.jsonl", ROWS[:1]), ("zh/train.jsonl", ROWS[1:])):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "README.md").write_text(
        "---\nconfigs:\n"
        "- {config_name: en, default: true, data_files: [{split: train, path: en/train.jsonl},"
        " {split: test, path: en/test.jsonl}]}\n"
        "- {config_name: zh, data_files: zh/train.jsonl}\n---\n"
    )
    return folder


@pytest.fixture
def hub(repository, monkeypatch):
    """Stands in for Hugging Face: the library finds the files of the folder, and says addresses on the hub."""
    asked = []
    load = datasets.load_dataset_builder

    def load_dataset_builder(path, **options):
        if path == str(repository):  # as ModelScope lays it down
            return load(path, **options)
        asked.append((path, options["token"]))
        if path != "owner/name":
            raise datasets.exceptions.DatasetNotFoundError(f"Dataset {path!r} doesn't exist on the Hub")
        builder = load(str(repository), **{**options, "token": None})
        for split, files in builder.config.data_files.items():
            home = f"{repository}/"
            builder.config.data_files[split] = [
                f"hf://datasets/owner/name@v%2F1/{file.removeprefix(home)}" for file in files
            ]
        return builder

    def hf_hub_download(repo, file, *, repo_type, token, cache_dir, revision=None):
        asked.append((repo, file, repo_type, revision, token, cache_dir))
        return str(repository / file)

    monkeypatch.setattr(datasets, "load_dataset_builder", load_dataset_builder)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hf_hub_download)
    return asked


def resolve(tmp_path, name="hub:owner/name", access=None, *, directory=None, **entry):
    info = {"toy": entry} if entry else None
    catalog = load_catalog(settings(directory or tmp_path, info), access)
    return catalog.resolve("toy" if entry else name)


def texts(spec):
    return [row.values["text"] for chunk in read_rows(spec) for row in chunk]


def test_a_repository_is_a_data_set_and_its_rows_keep_their_types(tmp_path, hub):
    spec = resolve(tmp_path, access=HubAccess(hf_token="secret", cache_dir="cache"))
    assert [row.values for chunk in read_rows(spec) for row in chunk] == ROWS
    assert (spec.name, spec.formatting) == ("hub:owner/name", "text")
    assert hub == [
        ("owner/name", "secret"),
        ("owner/name", "en/train.jsonl", "dataset", "v/1", "secret", "cache"),
    ]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"subset": "zh"}, ["two"]),
        ({"split": "test"}, ["one"]),
        ({"split": "train+test"}, ["one", "two", "one"]),
        ({"split": "train[50%:]"}, ["two"]),
    ],
)
def test_an_entry_chooses_subset_split_and_range(tmp_path, hub, entry, expected):
    assert texts(resolve(tmp_path, hf_hub_url="owner/name", **entry)) == expected


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"hf_hub_url": "owner/other"},
            "owner/other cannot be had from Hugging Face: Dataset 'owner/other' doesn't",
        ),
        ({"hf_hub_url": "owner/name", "subset": "fr"}, r"owner/name \(subset fr\) cannot be had .*not found"),
        ({"hf_hub_url": "owner/name", "split": "dev"}, "owner/name has no split 'dev'; it has train, test"),
        ({"hf_hub_url": "owner/name", "split": "train+test[:1]"}, "a range of several splits at once"),
    ],
)
def test_what_a_repository_does_not_have_is_refused(tmp_path, hub, entry, message):
    with pytest.raises(DataError, match=f"data set 'toy': {message}"):
        resolve(tmp_path, **entry)


def test_a_repository_of_images_is_refused(tmp_path, hub, repository):
    for path in (repository / "README.md", *repository.glob("*/*")):
        path.unlink()
    (repository / "a.png").write_bytes(b"")
    with pytest.raises(DataError, match="the repository is of kind imagefolder; those of json, csv"):
        resolve(tmp_path)


def test_a_file_that_cannot_be_fetched_is_an_error_of_the_data_set(tmp_path, hub, monkeypatch):
    def fail(*_, **__):
        raise ConnectionError("no network\nand more")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    with pytest.raises(DataError, match=r"owner/name cannot be had from Hugging Face: no network\. Check"):
        resolve(tmp_path)
    with pytest.raises(DataError, match=r"dataset_dir: the catalogue dataset_info.json of a/b cannot be fetched"):
        resolve(tmp_path, directory="REMOTE:a/b")


def test_without_a_network_the_way_out_is_said(tmp_path, hub, monkeypatch):
    def fail(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    monkeypatch.setattr(hubs, "find_network_trouble", lambda: "huggingface.co cannot be reached (no route)")
    message = r"owner/name is not in the cache, and huggingface\.co cannot be reached \(no route\)\. Without a network,"
    with pytest.raises(DataError, match=message):
        resolve(tmp_path)
    with pytest.raises(DataError, match=r"cannot be fetched: huggingface\.co cannot be reached"):
        resolve(tmp_path, directory="REMOTE:a/b")


def test_online_takes_every_name_as_a_repository(tmp_path, hub):
    assert texts(resolve(tmp_path, "owner/name", directory="ONLINE")) == ["one", "two"]


def test_a_catalogue_may_stand_in_a_repository(tmp_path, hub, repository):
    (repository / "dataset_info.json").write_text(json.dumps({"remote": {"hf_hub_url": "owner/name"}}))
    assert texts(resolve(tmp_path, "remote", directory="REMOTE:a/b")) == ["one", "two"]
    assert hub[0] == ("a/b", "dataset_info.json", "dataset", None, None, None)


@pytest.fixture
def modelscope(repository, monkeypatch):
    asked = []

    class HubApi:
        def login(self, token):
            asked.append(token)

    def dataset_snapshot_download(name, *, cache_dir):
        if name != "owner/name":
            raise ValueError("no such repository")
        asked.append((name, cache_dir))
        return str(repository)

    module = SimpleNamespace(HubApi=HubApi, dataset_snapshot_download=dataset_snapshot_download)
    monkeypatch.setitem(sys.modules, "modelscope", module)
    return asked


def test_modelscope_is_asked_where_it_is_named_alone_or_preferred(tmp_path, hub, modelscope):
    both = {"ms_hub_url": "owner/name", "hf_hub_url": "owner/name"}
    preferred = HubAccess(prefers_modelscope=True, ms_token="word", cache_dir="cache")
    assert texts(resolve(tmp_path, ms_hub_url="owner/name", split="test")) == ["one"]
    assert texts(resolve(tmp_path, access=preferred, **both)) == ["one", "two"]
    assert texts(resolve(tmp_path, access=preferred)) == ["one", "two"]
    assert modelscope == [("owner/name", None), "word", ("owner/name", "cache"), "word", ("owner/name", "cache")]
    modelscope.clear()
    resolve(tmp_path, **both)
    assert modelscope == []


def test_a_repository_that_modelscope_does_not_have_is_refused(tmp_path, modelscope, monkeypatch):
    with pytest.raises(DataError, match="owner/other cannot be had from ModelScope: no such repository"):
        resolve(tmp_path, ms_hub_url="owner/other")
    monkeypatch.setitem(sys.modules, "modelscope", None)
    with pytest.raises(MissingDependencyError, match=r"tunesmith\[modelscope\]"):
        resolve(tmp_path, ms_hub_url="owner/name")


def test_the_settings_of_the_model_hold_for_data(monkeypatch):
    monkeypatch.delenv("USE_MODELSCOPE_HUB", raising=False)
    config = ModelConfig(hf_hub_token="a", ms_hub_token="b", cache_dir="c")
    assert HubAccess.of(config) == HubAccess(False, "a", "b", "c")
    assert HubAccess.of(ModelConfig(model_hub="modelscope")).prefers_modelscope
    monkeypatch.setenv("USE_MODELSCOPE_HUB", "1")
    assert HubAccess.of(config).prefers_modelscope
