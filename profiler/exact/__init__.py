"""Shows a program CUDA devices on a machine without a GPU, and counts exactly what it makes a GPU and its host do.

    with virtual_cuda() as counts:
        model.cuda()
        ...
    counts.syncs

Tensors "on" such a device lie in the CPU's memory, and the CPU computes: results equal those of the CPU, and counts are
exact and the same in every run. Times tell nothing about a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profiler.exact.model import Counts


@contextmanager
def virtual_cuda(devices: int = 1, card: str = "h100") -> Iterator[Counts]:
    """Show `devices` CUDA devices to the code in the `with` statement, and count what it does with them.

    :param card: a name of `profiler.exact.model.CARDS`.
    :raises RuntimeError: the machine has a real GPU, or this version of torch is not supported.
    """
    from profiler.exact import private_api
    from profiler.exact.model import Counts

    private_api.require(private_api.NAMES, "virtual CUDA")
    from profiler.exact.installation import VirtualCuda

    counts = Counts()
    machine = VirtualCuda(counts, count=devices, card=card)
    try:
        machine.install()
        yield counts
    finally:
        machine.remove()


def has_used_memory() -> bool:
    """Tell whether the program had a tensor on the current virtual device."""
    import torch

    return torch.cuda.max_memory_allocated() > 0
