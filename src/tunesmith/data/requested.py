"""The data sets that a run names: found, and looked at before anything is tokenised."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tunesmith.config import RunConfig
from tunesmith.data.formats.kinds import check_kind
from tunesmith.data.repeats import check_named_once
from tunesmith.data.sources import DatasetSpec, HubAccess, load_catalog


@dataclass(frozen=True, slots=True)
class Requested:
    """Data sets by what a run does with them, in the order in which it names them."""

    trained: tuple[DatasetSpec, ...]
    measured: tuple[DatasetSpec, ...]


def resolve_requested(config: RunConfig) -> Requested:
    """Return the data sets of `dataset` and `eval_dataset`, with the rows of each that the run takes at most.

    Raises:
        DataError: One is unknown, unreadable, named twice, or of another kind than the stage needs.
    """
    data = config.data
    catalog = load_catalog(data, HubAccess.of(config.model))
    trained = _capped([catalog.resolve(name) for name in data.dataset], config, 0)
    measured = _capped([catalog.resolve(name) for name in data.eval_dataset], config, len(trained))
    check_named_once(trained, "dataset", val_size=data.val_size)
    check_named_once(measured, "eval_dataset")
    for spec in (*trained, *measured):
        check_kind(spec, config.objective.stage, needs_declared=data.bad_rows == "error")
    return Requested(trained, measured)


def _capped(specs: Sequence[DatasetSpec], config: RunConfig, first: int) -> tuple[DatasetSpec, ...]:
    return tuple(
        replace(spec, max_rows=config.data.max_samples_of(number)) for number, spec in enumerate(specs, start=first)
    )
