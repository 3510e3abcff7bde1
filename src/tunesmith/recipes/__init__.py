"""Ready-to-run configuration files, named on the command line without a path: `tunesmith train quickstart`.

Every YAML file of this folder is validated and run by the tests. The rows they train on are in `data/`.
"""

from collections.abc import Sequence
from pathlib import Path

from tunesmith.config.command_line import parse_overrides

FOLDER = Path(__file__).parent
DATA_FOLDER = FOLDER / "data"


def list_recipes() -> list[str]:
    """Return the names of all recipes, sorted."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


def expand_recipe(arguments: Sequence[str]) -> list[str]:
    """Replace a recipe's name at the start of a command line by its file and the folder of its data.

    A file or folder of that name in the working folder wins: then nothing is replaced. So does a folder of data that
    the command line names itself.

        quickstart max_steps=2  ->  .../recipes/quickstart.yaml dataset_dir=.../recipes/data max_steps=2
    """
    words = list(arguments)
    if not words or words[0] not in list_recipes() or Path(words[0]).exists():
        return words
    overrides, _ = parse_overrides(words[1:])
    names_data = any(entry.key == "dataset_dir" for entry in overrides)
    data = [] if names_data else [f"dataset_dir={DATA_FOLDER}"]
    return [str(FOLDER / f"{words[0]}.yaml"), *data, *words[1:]]
