"""The files of a saved adapter, read with words for whoever named the folder."""

from pathlib import Path

from peft import PeftConfig

from tunesmith.config.peft_methods import PEFT_METHODS, REFUSED_METHODS
from tunesmith.errors import ModelError
from tunesmith.models.locations import ADAPTER_FILE, read_adapter_file

_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")


def read_settings(folder: str | Path) -> PeftConfig:
    """Return the settings of a saved adapter.

    Raises:
        ModelError: They are no JSON, or of a kind that the installed peft does not know.
    """
    kind = read_adapter_file(Path(folder), "adapter_name_or_path").get("peft_type")
    if not isinstance(kind, str) or kind not in {name.upper() for name in (*PEFT_METHODS, *REFUSED_METHODS)}:
        found = f"says peft_type: {kind}, which the installed peft does not know" if kind else "names no peft_type"
        raise ModelError(
            f"adapter_name_or_path: {Path(folder) / ADAPTER_FILE} {found}, so its weights cannot be used. Give a "
            "folder that peft wrote, or update peft."
        )
    settings: PeftConfig = PeftConfig.from_pretrained(str(folder))
    return settings


def check_has_weights(folder: str | Path) -> None:
    """Refuse a folder that holds settings alone.

    Raises:
        ModelError: There is no file of weights.
    """
    if not any((Path(folder) / name).is_file() for name in _WEIGHTS):
        raise ModelError(
            f"adapter_name_or_path: {folder} holds an {ADAPTER_FILE} and no {_WEIGHTS[0]}, so it is not the whole "
            "adapter. Copy or download it again, or give the folder of a checkpoint that has it."
        )
