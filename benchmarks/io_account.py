"""What the account of time costs: the borders that every micro-batch and step crosses, against the time of a step.

Run `python -m benchmarks.io_account`, on a machine with a GPU also with `--device cuda`.
"""

import argparse
import time
from statistics import median

import torch

from benchmarks import machine
from tunesmith.training.monitoring.account import PHASES, TimeAccount, find_events

BAR = 0.005


def main() -> None:
    """Time the borders of many steps, and give them as a share of steps of several lengths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(machine.render_machine(machine.describe_machine()))
    device = torch.device(options.device)
    seconds = median(_measure(device, options.steps) for _ in range(options.rounds))
    for step in (0.005, 0.02, 0.1):
        share = seconds / step
        print(f"steps of {step * 1000:>4.0f} ms: {share:.3%} {'ok' if share < BAR else 'MISSED'}")
    print(f"{seconds * 1e6:.1f} us a step of one micro-batch, reading included every tenth")


def _measure(device: torch.device, steps: int) -> float:
    account = TimeAccount(events=find_events(device))
    begin = time.perf_counter()
    for number in range(steps):
        for phase in PHASES:
            account.enter(phase)
        if number % 10 == 9:
            account.take()
    return (time.perf_counter() - begin) / steps


if __name__ == "__main__":
    main()
