"""The model that is trained, in the same kind of numbers for every tool."""

import json
from pathlib import Path


def link_model_as_fp32(model: Path, folder: Path) -> Path:
    """Make `folder` the same model with a configuration that says fp32, and return it.

    Tools pick the numbers they compute in from this entry, some with no setting to overrule it, and then differ by
    processor. Weights are widened as they are loaded; files are linked, not copied.
    """
    folder.mkdir(parents=True)
    for file in model.resolve().iterdir():
        if file.name != "config.json":
            (folder / file.name).symlink_to(file)
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    config.pop("torch_dtype", None)
    config["dtype"] = "float32"
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return folder
