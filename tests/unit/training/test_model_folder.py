from tunesmith.training.model_folder import remove_other_weights


def test_parts_of_an_older_model_go_and_other_files_stay(tmp_path):
    older = {f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)} | {"model.safetensors.index.json"}
    older |= {"adapter_config.json", "adapter_model.bin", "chat_template.jinja", "rope_scaling.json"}
    kept = {"model.safetensors", "config.json", "notes.md", "my_config.json", "remodel.safetensors", "run.yaml"}
    for name in older | kept:
        (tmp_path / name).touch()
    (tmp_path / "checkpoint-2").mkdir()
    (tmp_path / "checkpoint-2" / "adapter_config.json").touch()
    remove_other_weights(tmp_path, {"model.safetensors", "config.json"})
    assert {path.name for path in tmp_path.iterdir()} == kept | {"checkpoint-2"}
    assert (tmp_path / "checkpoint-2" / "adapter_config.json").exists()
