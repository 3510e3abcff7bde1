"""What the plan of a run says about loading: workers, batches, and whether there are files enough."""

from collections.abc import Iterator

from tunesmith.runtime.ranks import Ranks
from tunesmith.training.io.bounds import Demand, Machine, measure_files, plan_open_files
from tunesmith.training.io.settings import LoaderPolicy
from tunesmith.training.io.token_batches import TokenBatches


def render_loading(policy: LoaderPolicy, ranks: Ranks, num_batches: int) -> str:
    """Return how batches are made, with the need of open files where workers are sure to be used.

    Args:
        policy: Of the run.
        ranks: Of this process.
        num_batches: Micro-batches of an epoch on this process.
    """
    need = measure_files()
    if policy.tunes_workers:
        bound = Machine.measured(ranks).bound(Demand(), num_batches=num_batches, files=need)
        return (
            f"as many workers as keep up, found out during the run (at first at most {bound.workers}: {bound.reason})"
        )
    workers, ahead = policy.start.num_workers, policy.start.prefetch_factor
    if not workers:
        return "batches are made in the training process (dataloader_num_workers: 0)"
    files = need.needed(workers, ahead)
    return f"{policy.start.render()}; about {files:,} open files in each process, {need.limit.hard:,} are allowed"


def find_loading_notes(policy: LoaderPolicy, ranks: Ranks, batches: TokenBatches | None) -> Iterator[str]:
    """Yield what has to be done about open files, and what a budget of tokens comes to."""
    if policy.start.num_workers:
        need = measure_files()
        files = plan_open_files(policy.start.num_workers, policy.start.prefetch_factor, ranks.local_world_size, need)
        if files.note is not None:
            yield files.note
        memory = Machine.measured(ranks).memory_bound(None)
        if policy.start.num_workers > memory.workers:
            yield (
                f"{policy.start.num_workers} workers may be too many for the memory: {memory.reason}. They are started "
                "as asked for; where the system ends one, fewer go on."
            )
    if batches is not None and batches.num_over_budget:
        yield (
            f"{batches.num_over_budget:,} rows are longer than `tokens_per_device_batch` and make micro-batches of "
            "their own; lower `cutoff_len` or raise the budget."
        )
