"""Post-train open language models from one YAML file.

The two calls a notebook needs::

    from tunesmith import load_config, train

    result = train(load_config("run.yaml", ["learning_rate=1e-4"]))
    result.trainer  # the transformers.Trainer that ran
    result.state    # its TrainerState, log history included

Nothing heavy is imported until it is used, so that `import tunesmith` and every configuration error are instant.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "load_config", "train"]

if TYPE_CHECKING:
    from tunesmith.config import load_config
    from tunesmith.training.run import run_training as train


def __getattr__(name: str) -> Any:
    if name == "load_config":
        from tunesmith.config import load_config

        return load_config
    if name == "train":
        from tunesmith.training.run import run_training

        return run_training
    raise AttributeError(f"module 'tunesmith' has no attribute {name!r}")
