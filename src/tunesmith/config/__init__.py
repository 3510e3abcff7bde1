"""Typed settings: one YAML file, the environment and the command line become one frozen `RunConfig`.

Nothing in this package imports torch. The story, in the order in which it happens:

    command_line.py   words of a command        -> file and overrides
    files.py          YAML or JSON              -> values with the line each stands on
    environment.py    TUNESMITH_<KEY>           -> values
    settings.py       the group dataclasses     -> one table of keys, types and ranges
    coercion.py       written values            -> typed values
    load.py           all of these, merged      -> RunConfig, or every problem at once
    rules/            what settings say about each other, about files and about this machine
    notes.py          what this run has no use for, and other things worth knowing
"""

from tunesmith.config.adapter import AdapterConfig
from tunesmith.config.command_line import parse_command_line
from tunesmith.config.data import DataConfig
from tunesmith.config.distributed import DistributedConfig
from tunesmith.config.export import ExportConfig
from tunesmith.config.generation import GenerationConfig
from tunesmith.config.load import load_config
from tunesmith.config.loading import LoadingConfig
from tunesmith.config.model import ModelConfig
from tunesmith.config.objective import ObjectiveConfig
from tunesmith.config.quantization import QuantizationConfig
from tunesmith.config.run_config import Origin, RunConfig
from tunesmith.config.training import TrainingConfig

__all__ = [
    "AdapterConfig",
    "DataConfig",
    "DistributedConfig",
    "ExportConfig",
    "GenerationConfig",
    "LoadingConfig",
    "ModelConfig",
    "ObjectiveConfig",
    "Origin",
    "QuantizationConfig",
    "RunConfig",
    "TrainingConfig",
    "load_config",
    "parse_command_line",
]
