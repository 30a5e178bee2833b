"""What a piece of work takes of memory at most: on a GPU torch's peak, on a CPU what the process grew by."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import torch


class Peak:
    """A context; `bytes` after it. What the process had before and uses again is not counted on a CPU.

    Linux forgets the largest resident size on request (proc_pid_clear_refs(5)); where it cannot, only growth beyond the
    largest size that the process ever had is seen. Who reads that size from outside, as the profiler does, sees that of
    the last context only.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before = 0
        self.bytes = 0

    def __enter__(self) -> Self:
        if self._device.type == "cuda":
            import torch

            torch.cuda.reset_peak_memory_stats(self._device)
            self._before = torch.cuda.memory_allocated(self._device)
            return self
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        self._before = most_resident()
        return self

    def __exit__(self, *_: object) -> None:
        if self._device.type == "cuda":
            import torch

            after = torch.cuda.max_memory_allocated(self._device)
        else:
            after = most_resident()
        self.bytes = max(0, after - self._before)


def most_resident() -> int:
    """The largest resident size of this process in bytes, since it was last forgotten."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_bytes().splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) << 10
    unit = 1 if os.uname().sysname == "Darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
