"""Optimizers: what the settings name, over groups of parameters that share a learning rate and a weight decay.

groups.py     which parameters share a learning rate and a weight decay
"""

from tunesmith.training.optimizers.groups import (
    LoraPlusRates,
    build_parameter_groups,
    decays,
    keep_embeddings_exact,
)

__all__ = ["LoraPlusRates", "build_parameter_groups", "decays", "keep_embeddings_exact"]
