import json

import pytest


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "/no/such/model",
            "model_name_or_path: `model_name_or_path` is '/no/such/model'; nothing is there (looked in /no/such).",
        ),
        ("./none", "model_name_or_path: `model_name_or_path` is './none'; nothing is there (looked in "),
        ("a/b/c", "model_name_or_path: `model_name_or_path` is 'a/b/c'; nothing is there"),
        ("model.gguf", "model_name_or_path: `model_name_or_path` is 'model.gguf'; nothing is there"),
        (
            "data",
            "model_name_or_path: `model_name_or_path` is 'data'; that folder holds no config.json, no .gguf file and",
        ),
        (
            "notes.txt",
            "model_name_or_path: `model_name_or_path` is 'notes.txt'; a file can be a model only if it ends in .gguf",
        ),
    ],
)
def test_a_path_that_is_no_model_is_refused(folder, problems, name, message):
    (folder / "notes.txt").touch()
    (found,) = problems(model_name_or_path=name)
    assert found.startswith(message)


@pytest.mark.parametrize("name", ["model", "org/name", "gpt2", "some.gguf", "with_gguf", "adapter"])
def test_models_of_every_sort_are_taken(folder, problems, name):
    (folder / "some.gguf").touch()
    for inside in ("with_gguf/x.gguf", "adapter/adapter_config.json"):
        (folder / inside).parent.mkdir()
        (folder / inside).touch()
    assert problems(model_name_or_path=name) == []


@pytest.mark.parametrize("purpose", ["train", "generate", "export"])
def test_a_model_has_to_be_named(problems, purpose):
    found = problems(without=("model_name_or_path",), purpose=purpose)
    assert found[0] == (
        "model_name_or_path: it is not set; give a local folder, a GGUF file or a hub id such as `org/name`."
    )


def test_a_gguf_file_has_a_fast_tokenizer_only(folder, problems):
    (folder / "with_gguf").mkdir()
    for name in ("some.gguf", "with_gguf/x.gguf", "model/x.gguf"):
        (folder / name).touch()
    for name in ("some.gguf", "with_gguf"):
        assert problems(model_name_or_path=name, use_fast_tokenizer=False) == [
            (
                f"use_fast_tokenizer: `use_fast_tokenizer: false` is not possible with the GGUF file '{name}', for "
                "which there is only a fast tokenizer; remove it. (see model_name_or_path)"
            )
        ]
        assert problems(model_name_or_path=name, use_fast_tokenizer=True) == []
    assert problems(model_name_or_path="model", use_fast_tokenizer=False) == []


def test_adapters_are_looked_at(folder, problems):
    (folder / "run" / "checkpoint-5").mkdir(parents=True)
    (folder / "good").mkdir()
    (folder / "good" / "adapter_config.json").touch()
    assert problems(adapter_name_or_path="good,org/adapter") == []
    assert problems(adapter_name_or_path="./none") == [
        "adapter_name_or_path: `adapter_name_or_path` has './none'; nothing is there."
    ]
    assert problems(adapter_name_or_path="run") == [
        (
            "adapter_name_or_path: `adapter_name_or_path` has 'run'; that folder holds no "
            "adapter_config.json, so it is no "
            "adapter. Name one of the checkpoints in it."
        )
    ]
    assert problems(adapter_name_or_path="data") == [
        (
            "adapter_name_or_path: `adapter_name_or_path` has 'data'; that folder holds no "
            "adapter_config.json, so it is no adapter."
        )
    ]


def test_a_run_needs_rows_and_something_to_do(problems):
    assert problems(without=("dataset",), do_train=True) == [
        "do_train: `do_train: true` needs rows to train on; name them in `dataset`."
    ]
    assert problems(without=("dataset",)) == [
        "dataset: there is nothing to do: no training, evaluation or prediction is asked for; set `dataset` to train."
    ]
    assert problems(do_train=False) == [
        (
            "dataset: there is nothing to do: no training, evaluation or prediction is asked for; "
            "remove `do_train: false`. "
            "(see do_train)"
        )
    ]
    assert problems(without=("dataset",), eval_dataset="identity", do_eval=True) == []


def test_names_are_looked_up_in_the_catalogue(problems):
    (found,) = problems(dataset="alpaca")
    assert (
        "neither in the catalogue (data/dataset_info.json, `dataset_info`) nor a file. Did you mean `alpaca_" in found
    )
    (found,) = problems(eval_dataset="zzz")
    assert found.startswith("eval_dataset: `eval_dataset` has 'zzz', which is neither in the catalogue")
    assert found.endswith("Known are alpaca_en, alpaca_zh, identity.")


@pytest.mark.parametrize(
    ("settings", "suggestion"),
    [
        ({"model_name_or_path": "./Model"}, "model"),
        ({"adapter_name_or_path": "./ADAPTER"}, "adapter"),
        ({"dataset": "Rows.jsonl"}, "rows.jsonl"),
        ({"dataset": "More.jsonl"}, "data/more.jsonl"),
        ({"dataset_dir": "Data"}, "data"),
        ({"dataset": "mine", "dataset_info": {"mine": {"file_name": "More.jsonl"}}}, "data/more.jsonl"),
        ({"resume_from_checkpoint": "Adapter"}, "adapter"),
    ],
)
def test_a_path_that_differs_in_capitals_is_suggested_as_it_is(folder, problems, settings, suggestion):
    (folder / "rows.jsonl").touch()
    (folder / "data" / "more.jsonl").touch()
    (folder / "adapter").mkdir()
    assert problems(**settings)[0].endswith(f" Did you mean '{suggestion}'?")


def test_inline_entries_and_paths_are_names_too(folder, problems):
    (folder / "rows.jsonl").touch()
    (folder / "data" / "more.jsonl").touch()
    (folder / "data" / "a.json").touch()
    assert problems(dataset="mine,rows.jsonl,more.jsonl", dataset_info={"mine": {"file_name": "a.json"}}) == []


def test_files_of_entries_are_looked_up_in_the_folder_of_the_catalogue(folder, problems):
    (folder / "here.json").touch()
    (found,) = problems(dataset="mine", dataset_info={"mine": {"file_name": "here.json"}})
    assert found == "dataset_info: `dataset` has 'mine', whose file_name is 'here.json': data/here.json is not there."
    (folder / "data" / "identity.json").unlink()
    (found,) = problems(eval_dataset="identity", dataset="alpaca_en")
    assert found.startswith("eval_dataset: `eval_dataset` has 'identity', whose file_name is 'identity.json'")


def test_a_missing_or_broken_catalogue_is_said(folder, problems):
    (found,) = problems(dataset_dir="nowhere")
    assert "which is no file, and there is no catalogue nowhere/dataset_info.json to look it up in" in found
    (folder / "data" / "dataset_info.json").write_text("{")
    (found,) = problems()
    assert found.startswith("dataset: the catalogue data/dataset_info.json cannot be read as JSON")


@pytest.mark.parametrize("place", ["ONLINE", "REMOTE:org/catalogue"])
def test_names_of_a_hub_are_not_looked_up_before_a_run(problems, place):
    assert problems(dataset_dir=place) == []


@pytest.mark.parametrize("name", ["hub:owner/name", "s3://bucket/rows.jsonl", "data/*.json"])
def test_a_name_may_say_itself_where_the_rows_are(problems, folder, name):
    (folder / "data" / "a.json").write_text("[]")
    assert problems(dataset=name) == []


def test_a_pattern_that_nothing_is_like_is_refused(problems):
    (found,) = problems(dataset="data/*.nothing")
    assert "`dataset` has 'data/*.nothing', which is neither" in found


def test_an_output_folder_has_to_be_named(problems):
    assert problems(without=("output_dir",)) == ["output_dir: it is not set; name the folder that the run writes to."]


@pytest.mark.parametrize("name", ["checkpoint-10/trainer_state.json", "adapter_model.safetensors", "all_results.json"])
def test_an_output_folder_in_use_is_refused_with_the_ways_out(folder, problems, name):
    (folder / "out" / name).parent.mkdir(parents=True)
    (folder / "out" / name).touch()
    shown = name.split("/")[0]
    assert problems() == [
        (
            f"output_dir: `output_dir` is 'out', which is in use: it holds {shown}. Name another folder, or set "
            "`resume_from_checkpoint: true` to go on or `overwrite_output_dir: true` to start over."
        )
    ]
    assert problems(overwrite_output_dir=True) == []
    assert problems(do_eval=True, val_size=0.1) == []


def test_other_files_do_not_occupy_an_output_folder(folder, problems):
    (folder / "out").mkdir()
    (folder / "out" / "notes.txt").touch()
    assert problems() == []


def test_an_output_folder_is_no_file(folder, problems):
    (folder / "out").touch()
    assert problems() == ["output_dir: `output_dir` is 'out', which is a file; name a folder."]


@pytest.mark.parametrize("inside", [None, "all_results.json", "trainer_log.jsonl", "run.yaml"])
def test_resuming_starts_at_the_beginning_where_there_is_no_checkpoint(folder, problems, inside):
    if inside is not None:
        (folder / "out").mkdir()
        (folder / "out" / inside).touch()
    assert problems(resume_from_checkpoint=True) == []


def test_a_named_checkpoint_has_to_be_there(folder, problems):
    assert problems(resume_from_checkpoint="out/checkpoint-5") == [
        (
            "resume_from_checkpoint: `resume_from_checkpoint` is 'out/checkpoint-5', and there is no such folder; "
            "allowed is true or a checkpoint."
        )
    ]
    (folder / "out" / "checkpoint-5").mkdir(parents=True)
    assert problems(resume_from_checkpoint=True) == []
    assert problems(resume_from_checkpoint="out/checkpoint-5") == []


def test_exporting_needs_a_folder(problems):
    assert problems(purpose="export") == ["export_dir: it is not set; name the folder for the merged model."]
    assert problems(purpose="export", export_dir="merged") == []


MEDIA = {"file_name": "identity.json", "columns": {"messages": "turns", "images": "pictures", "videos": None}}


def test_pictures_are_refused_before_anything_is_loaded_where_a_run_uses_them(folder, problems):
    catalogue = {"identity": {"file_name": "identity.json"}, "photos": MEDIA}
    (folder / "data" / "dataset_info.json").write_text(json.dumps(catalogue))
    assert problems(dataset="identity") == []
    (found,) = problems(dataset="photos")
    assert found.startswith("dataset: `dataset` has 'photos', whose entry names the column images: pictures, films")
    assert found.endswith("or remove images from the entry to train on the text alone.")
    (found,) = problems(dataset="identity", eval_dataset="photos")
    assert found.startswith("eval_dataset: `eval_dataset` has 'photos', whose entry names the column images")
    (found,) = problems(dataset="photos", dataset_info={"photos": MEDIA})
    assert found.startswith("dataset_info: `dataset` has 'photos', whose entry names the column images")


def test_an_entry_of_the_catalogue_that_a_run_uses_is_looked_at(folder, problems):
    entry = {"file_name": "identity.json", "colums": {"prompt": "q"}}
    (folder / "data" / "dataset_info.json").write_text(json.dumps({"identity": entry, "unused": {"zzz": 1}}))
    (found,) = problems(dataset="identity")
    assert found.startswith(
        "dataset: `dataset` has 'identity', and in data/dataset_info.json `identity.colums` is not a key of a data set."
    )
    assert "Did you mean `columns`?" in found


@pytest.mark.parametrize("key", ["model_name_or_path", "ref_model"])
def test_results_do_not_go_into_the_folder_of_a_model(folder, problems, key):
    changes = {"stage": "dpo", "ref_model": "model"} if key == "ref_model" else {}
    found = problems(output_dir=str(folder / "model"), overwrite_output_dir=True, **changes)
    assert any(f"which is the folder of `{key}`; its files would be written over" in text for text in found)
