"""Measures the peak memory of a piece of work: on a GPU torch's peak, on a CPU the growth of the process."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import torch


class Peak:
    """A context that sets `bytes` at its end. On a CPU, memory that the process held before is not counted.

    Linux resets the peak resident size on request (proc_pid_clear_refs(5)); where it cannot, only growth beyond the
    largest size that the process ever had is seen. A reader outside the process, such as the profiler, then sees the
    peak since the last reset only.
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
    """The peak resident size of this process in bytes, since the last reset."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_bytes().splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) << 10
    unit = 1 if os.uname().sysname == "Darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
