"""What the trainer of a run is told besides `TrainingArguments`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tunesmith.config.training import TrainingConfig
from tunesmith.data.loading.samplers import EpochSampler
from tunesmith.data.streaming.source import StreamSource
from tunesmith.models.quantization.qat import CompressionScheme
from tunesmith.training.checkpoints import RowOrder
from tunesmith.training.io.settings import LoaderPolicy
from tunesmith.training.io.token_batches import TokenBatches
from tunesmith.training.optimizers import LoraPlusRates

ScoreAnswers = Callable[[Any, str], dict[str, float]]
"""(evaluation set, prefix of the metrics) -> metrics of generated answers, names with the prefix."""


@dataclass(frozen=True, slots=True)
class TrainerPlan:
    """What a run needs besides `TrainingArguments`."""

    run_id: str
    order: RowOrder
    sampler: EpochSampler | None
    """Order of the training rows; `None` for a run that only evaluates."""

    stream: StreamSource | None = None
    """Rows that are read while the run goes on, in place of a training set and its order."""

    token_batches: TokenBatches | None = None
    """The micro-batches of training where they go by tokens instead of rows."""

    loading: LoaderPolicy = field(default_factory=LoaderPolicy)
    """How batches are made ahead of time."""

    describe_source: Callable[[int], str] | None = None
    """Tells of a `row_id` where the row comes from, for messages; without it they give numbers of rows."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """What a resumed run has to share besides the order of rows, see `lineage.decisive_settings`."""

    save_total_limit: int | None = None
    """Checkpoints kept; not given to transformers, whose rotation removes other runs' checkpoints too."""

    optimization: TrainingConfig | None = None
    """What the optimizer is made from; `None` for the rate and the decay of `TrainingArguments` alone."""

    trained_for: CompressionScheme | None = None
    """How the weights will be compressed after the training; saved beside them."""

    offloads_activations: bool = False
    """Whether activations wait for the backward pass in the memory of the host."""

    changes_positions: bool = False
    """Whether the base model has other rotary positions than it is stored with, which an adapter has to remember."""

    lora_plus: LoraPlusRates | None = None
    neftune_noise_alpha: float | None = None
    """Strength of the noise on embeddings; not given to transformers, whose noise depends on the layout of a batch."""

    reports_accuracy: bool = False
    score_answers: ScoreAnswers | None = None
