"""Runs a function in several processes with gloo, as torchrun would start them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def run_processes(target: str, arguments: list[str], num_processes: int = 2, timeout_seconds: int = 240) -> None:
    """Call `target` (`package.module:function`) with text arguments in each process, and fail if one fails."""
    module, function = target.split(":")
    code = f"import sys; from {module} import {function}; {function}(*sys.argv[1:])"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(num_processes):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(num_processes),
            "LOCAL_WORLD_SIZE": str(num_processes),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
            "PYTHONPATH": os.pathsep.join([str(_ROOT), str(_ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
        }
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", code, *arguments],
                env=environment,
                cwd=_ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        outputs = [process.communicate(timeout=timeout_seconds)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output
