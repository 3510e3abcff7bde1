"""What the plan of a run says about loading: workers, batches, and whether there are files enough."""

from collections.abc import Iterator

from tunesmith.runtime.ranks import Ranks
from tunesmith.training.io.bounds import Demand, Machine, measure_files, plan_open_files
from tunesmith.training.io.settings import LoaderPolicy, LoaderSettings
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


def find_loading_notes(
    policy: LoaderPolicy, ranks: Ranks, batches: TokenBatches | None, num_batches: int
) -> Iterator[str]:
    """Yield what there is to say about a number of workers that was asked for, and what a budget of tokens comes to.

    Args:
        policy: Of the run.
        ranks: Of this process.
        batches: The micro-batches where they go by tokens.
        num_batches: Micro-batches of an epoch on this process.
    """
    if policy.start.num_workers:
        yield from _comment_on_workers(policy.start, ranks, num_batches)
    if batches is not None and batches.num_over_budget:
        yield (
            f"{batches.num_over_budget:,} rows are longer than `tokens_per_device_batch` and make micro-batches of "
            "their own; lower `cutoff_len` or raise the budget."
        )


def _comment_on_workers(asked: LoaderSettings, ranks: Ranks, num_batches: int) -> Iterator[str]:
    workers, processes = asked.num_workers, ranks.local_world_size
    files = plan_open_files(workers, asked.prefetch_factor, processes, measure_files())
    if files.note is not None:
        yield files.note
    machine = Machine.measured(ranks)
    memory = machine.memory_bound(None)
    if workers > memory.workers:
        yield (
            f"{workers} workers may be too many for the memory: {memory.reason}. They are started as asked for; where "
            "the system ends one, fewer go on."
        )
    share = machine.processors / processes
    if workers > share:
        whose = " of each process" if processes > 1 else ""
        yield (
            f"{workers} workers{whose} share {share:.3g} processors: so many help only where they wait for a disk or a "
            "network."
        )
    if workers > num_batches:
        yield f"{workers} workers are more than the {num_batches} micro-batches of an epoch: some have nothing to do."
