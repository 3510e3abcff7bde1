"""Optimizers: what the settings name, over groups of parameters that share a learning rate and a weight decay.

build.py          the optimizer of a run
groups.py         which parameters share a learning rate and a weight decay
sets.py           several optimizers as one, and updates during the backward pass
low_rank.py       GaLore and APOLLO
blockwise.py      BAdam
by_structure.py   Adam-mini and Muon, which know what a parameter is for
"""

from tunesmith.training.optimizers.build import build_optimizer
from tunesmith.training.optimizers.groups import (
    LoraPlusRates,
    build_parameter_groups,
    decays,
    keep_embeddings_exact,
)

__all__ = ["LoraPlusRates", "build_optimizer", "build_parameter_groups", "decays", "keep_embeddings_exact"]
