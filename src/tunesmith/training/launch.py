"""One process per device: through torchrun where there are several, in this process where there is one.

The environment variables are those that LLaMA-Factory reads.
"""

import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tunesmith.config import RunConfig
from tunesmith.errors import EXIT_INTERRUPTED, ConfigError
from tunesmith.runtime.ranks import current_ranks, is_started_by_torchrun, read_whole_number
from tunesmith.runtime.stop_signals import is_hangup_ignored

logger = logging.getLogger(__name__)

_TRUE = ("true", "y", "1")
_SHUTDOWN_SECONDS = 600


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """How torchrun starts the processes of this machine."""

    num_processes: int
    num_nodes: str = "1"
    """Number of machines, or `least:most` for elastic runs."""

    node_rank: int = 0
    main_address: str = "127.0.0.1"
    main_port: int = 0
    max_restarts: int = 0
    rendezvous_id: str | None = None

    def torchrun_arguments(self) -> list[str]:
        """Return the words between `torchrun` and the program."""
        words = [f"--nnodes={self.num_nodes}", f"--nproc-per-node={self.num_processes}"]
        if self.rendezvous_id is not None:
            endpoint = f"{self.main_address}:{self.main_port}"
            return [
                *words,
                "--rdzv-backend=c10d",
                f"--rdzv-id={self.rendezvous_id}",
                f"--rdzv-endpoint={endpoint}",
                f"--max-restarts={self.max_restarts}",
            ]
        return [
            *words,
            f"--node-rank={self.node_rank}",
            f"--master-addr={self.main_address}",
            f"--master-port={self.main_port}",
        ]


def launch(config: RunConfig, words: Sequence[str]) -> int:
    """Run the training that a command line asks for, and return its exit code.

    Args:
        config: The checked settings.
        words: The command line after `train`, from which the processes read the same settings again.
    """
    plan = find_launch_plan(os.environ, num_devices=0 if config.training.use_cpu else count_devices())
    if plan is not None:
        return run_processes(plan, words)
    from tunesmith.training.run import run_training

    return EXIT_INTERRUPTED if run_training(config).is_interrupted else 0


def find_launch_plan(environ: Mapping[str, str], num_devices: int) -> LaunchPlan | None:
    """Return how to start several processes; `None` to go on in this one.

    Args:
        environ: Environment variables: FORCE_TORCHRUN, NPROC_PER_NODE, NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT,
            MAX_RESTARTS, RDZV_ID, MIN_NNODES, MAX_NNODES.
        num_devices: Accelerators that this run may use.
    """
    if is_started_by_torchrun(environ) or current_ranks(environ).world_size > 1:
        return None
    is_forced = environ.get("FORCE_TORCHRUN", "").strip().lower() in _TRUE
    # Naming a number of processes is asking for them, also without several devices: two on a CPU, for example.
    wanted = read_whole_number(environ, "NPROC_PER_NODE", max(1, num_devices))
    if not is_forced and wanted <= 1:
        return None
    rendezvous = environ.get("RDZV_ID")
    num_nodes = str(read_whole_number(environ, "NNODES", 1))
    if rendezvous is not None and "MIN_NNODES" in environ and "MAX_NNODES" in environ:
        num_nodes = f"{read_whole_number(environ, 'MIN_NNODES', 1)}:{read_whole_number(environ, 'MAX_NNODES', 1)}"
    if num_nodes != "1" and "MASTER_PORT" not in environ:
        raise ConfigError(
            f"The run has {num_nodes} machines (NNODES), but MASTER_PORT is not set: each machine would wait at a port "
            "of its own. Set MASTER_ADDR and MASTER_PORT to the same values on all of them."
        )
    return LaunchPlan(
        num_processes=wanted,
        num_nodes=num_nodes,
        node_rank=read_whole_number(environ, "NODE_RANK", 0),
        main_address=environ.get("MASTER_ADDR", "127.0.0.1"),
        main_port=read_whole_number(environ, "MASTER_PORT", 0) or _free_port(),
        max_restarts=read_whole_number(environ, "MAX_RESTARTS", 0),
        rendezvous_id=rendezvous,
    )


def run_processes(plan: LaunchPlan, words: Sequence[str]) -> int:
    """Start the same command line in every process through torchrun, wait, and return the exit code.

    The exit code is that of the process that failed first, so that a wrong setting, bad data or a bad loss can be told
    apart as in a run of one process.
    """
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    logger.info("Starting %d processes with torchrun.", plan.num_processes)
    # What the processes write is their own; torchrun's account of their exit codes adds a page to each error.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    # torchrun kills what is not done 30 s after a signal; finishing a step and writing a checkpoint may take longer.
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(_SHUTDOWN_SECONDS))
    # A list, not a text: settings with spaces in them stay whole.
    program = ["-m", "tunesmith.cli.main", "train", *words]
    # It would take SIGHUP back from nohup, and end with the terminal.
    signals = ["--signals-to-handle=SIGTERM,SIGINT,SIGQUIT"] if is_hangup_ignored() else []
    try:
        start: Callable[[object], None] = torchrun.run
        start(torchrun.get_args_parser().parse_args([*plan.torchrun_arguments(), *signals, *program]))
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        return failure.exitcode if failure.exitcode > 0 else 128 - failure.exitcode
    except SignalException:
        return EXIT_INTERRUPTED
    return 0


def count_devices() -> int:
    """Return the number of accelerators that torch sees."""
    import torch

    return torch.accelerator.device_count() if torch.accelerator.is_available() else 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
