"""The host device's worker while the host is busy in Python, against the same kernels back to back.

    python tests/benchmarks/bench_worker.py

prints the ratio of the worker's busy times, a pair a round.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from reference_trainer.devices.host import HostDevice
from reference_trainer.kernels import recurrent_step

WIDTH, LAYERS = 32, 2  # preset tiny: a kernel of about a microsecond, the shortest there is
SPINS = 100  # turns of a Python loop between two launches, longer than the kernel runs


def launcher(device: HostDevice):
    """A function that launches one recurrent step of the smallest model."""
    shapes = [(1, WIDTH), (1, WIDTH), (LAYERS * WIDTH, 2 * WIDTH), (LAYERS, 2 * WIDTH), (WIDTH, WIDTH), (LAYERS, WIDTH)]
    buffers = [device.upload(np.full(shape, 0.01, np.float32)) for shape in [*shapes, (1,), (2 * WIDTH,)]]
    return lambda: device.launch(recurrent_step.KERNEL, *buffers, WIDTH, LAYERS, 0, 0)


def busy(device: HostDevice, launch, kernels: int, spins: int) -> int:
    """The worker's busy ns for so many launches, with so many turns of a Python loop between them."""
    before = device.counts().busy_ns
    for _ in range(kernels):
        launch()
        for _ in range(spins):
            pass
    device.synchronize()
    return device.counts().busy_ns - before


def ratios(rounds: int, kernels: int) -> list[float]:
    """Return for each round busy time beside a spinning host over that back to back; `kernels` fit into the ring."""
    device = HostDevice()
    try:
        launch = launcher(device)
        busy(device, launch, kernels, spins=0)
        found = []
        for _ in range(rounds):
            alone = busy(device, launch, kernels, spins=0)
            beside = busy(device, launch, kernels, spins=SPINS)
            found.append(beside / alone)
        return found
    finally:
        device.close()


if __name__ == "__main__":
    measured = sorted(ratios(rounds=31, kernels=1000))
    print(f"busy beside a spinning host / back to back: median {statistics.median(measured):.3f}")
    print(f"of {len(measured)} pairs, from {measured[0]:.3f} to {measured[-1]:.3f}")
