"""Memory of a device and of this process, from torch's allocator or from the kernel, and a model of the batch size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from reference_trainer.performance.config import perf_config

if TYPE_CHECKING:
    import torch

_UNLIMITED: Final = 1 << 62
"""A control group of version 1 reports about this number where there is no limit."""
_AMOUNTS: Final = ("total", "free", "allocated", "reserved", "peak")
_GB: Final = 1 << 30
_ITEM_MB: Final = 50
"""Memory of an item of a batch, as the original program assumed it."""
_NO_STORE: Final = "a CPU's memory is taken and given back as it is needed, none is kept in store"


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Memory in bytes; None if it is unknown, with the reason in `reasons`."""

    device: str
    total: int | None = None
    """Memory of the device; on a CPU, what the container allows."""
    free: int | None = None
    """Memory that is available to any process."""
    allocated: int | None = None
    """Memory of this process: on a GPU that of its tensors, on a CPU all resident memory."""
    reserved: int | None = None
    """Memory that this process's allocator has taken from the device, including that of tensors."""
    peak: int | None = None
    """Largest amount that was allocated so far (since `reset_peak`, where the system supports it)."""
    reasons: dict[str, str] = field(default_factory=dict)


def get_memory_stats(device: str | torch.device = "cpu") -> dict[str, float | None]:
    """Return `allocated_gb`, `reserved_gb`, `free_gb`, `total_gb` and `peak_gb`, in GB of 2**30 bytes."""
    stats = memory_of(device)
    amounts = {name: getattr(stats, name) for name in _AMOUNTS}
    return {f"{name}_gb": None if amount is None else amount / _GB for name, amount in amounts.items()}


def get_optimal_batch_size(n: int, gpu_memory_gb: float = 16) -> int:
    """Model the items of a batch: 50 MB each in `max_memory` of the GPU, and `n` at least. It measures nothing."""
    return max(n, int(gpu_memory_gb * 1024 * perf_config.max_memory / _ITEM_MB))


def memory_of(device: str | torch.device = "cpu", *, proc: Path = Path("/proc")) -> MemoryStats:
    """Return the current state of a device's memory.

    :param device: cpu, cuda, cuda:0, ...; for a missing device all values are None, with reasons.
    :param proc: the kernel's files, for tests.
    """
    name = str(device)
    if name == "cpu":
        return _of_cpu(proc)
    return _of_cuda(name)


def reset_peak(device: str | torch.device = "cpu") -> bool:
    """Reset the peak of allocated memory; False where the system cannot do that."""
    if str(device) == "cpu":
        try:
            # It sets the peak of the resident set to its present size: proc(5), clear_refs.
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        except OSError:
            return False
        return True
    import torch

    torch.cuda.reset_peak_memory_stats(device)
    return True


class Peak:
    """A context that sets `bytes`, the peak memory of a piece of work, at its end: 0 where it is unknown.

    Memory that was taken before is not counted. Where the system cannot reset the peak, only growth beyond the largest
    size that the process ever had is seen. A reader outside the process, such as the profiler, then sees the peak since
    the last reset only.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before = 0
        self.bytes = 0

    def __enter__(self) -> Self:
        reset_peak(self._device)
        self._before = memory_of(self._device).peak or 0
        return self

    def __exit__(self, *_: object) -> None:
        self.bytes = max(0, (memory_of(self._device).peak or 0) - self._before)


def _of_cuda(name: str) -> MemoryStats:
    import torch

    try:
        free, total = torch.cuda.mem_get_info(name)
    except (RuntimeError, AssertionError, ValueError) as error:  # no such GPU, no driver, torch without CUDA
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        return MemoryStats(name, reasons=dict.fromkeys(_AMOUNTS, reason))
    allocated, reserved = torch.cuda.memory_allocated(name), torch.cuda.memory_reserved(name)
    return MemoryStats(name, total, free, allocated, reserved, torch.cuda.max_memory_allocated(name))


def _of_cpu(proc: Path) -> MemoryStats:
    machine, process = _kilobytes(proc / "meminfo"), _kilobytes(proc / "self" / "status")
    values = {
        "total": machine.get("MemTotal"),
        "free": machine.get("MemAvailable"),
        "allocated": process.get("VmRSS"),
        "peak": process.get("VmHWM"),
    }
    for limit, used in _groups(proc):
        if values["total"] is None or limit < values["total"]:
            values["total"] = limit
        available = max(limit - used, 0)
        values["free"] = available if values["free"] is None else min(values["free"], available)
    missing = {name: f"{proc} does not say" for name, value in values.items() if value is None}
    return MemoryStats("cpu", **values, reasons={**missing, "reserved": _NO_STORE})


def _kilobytes(file: Path) -> dict[str, int]:
    """Parse lines such as `Name:  123 kB` into bytes."""
    sizes = {}
    for line in _text(file).splitlines():
        name, _, value = line.partition(":")
        fields = value.split()
        if len(fields) == 2 and fields[0].isdecimal() and fields[1] == "kB":
            sizes[name] = int(fields[0]) * 1024
    return sizes


def _groups(proc: Path) -> Iterator[tuple[int, int]]:
    """Yield the limit and the used bytes of each control group (version 1 or 2) that limits this process's memory.

    The used bytes do not include cached files that the kernel may drop at once.
    """
    root = proc.parent / "sys" / "fs" / "cgroup"
    for line in _text(proc / "self" / "cgroup").splitlines():
        number, _, value = line.partition(":")
        controllers, _, path = value.partition(":")
        if number != "0" and "memory" not in controllers.split(","):
            continue
        top = root if number == "0" else root / "memory"
        names = (
            ("memory.max", "memory.current") if number == "0" else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        )
        folder = top / path.lstrip("/")
        for level in (folder, *folder.parents):
            if level != top and top not in level.parents:
                break
            limit, used = _text(level / names[0]).strip(), _text(level / names[1]).strip()
            if limit.isdecimal() and used.isdecimal() and int(limit) < _UNLIMITED:
                yield int(limit), max(int(used) - _droppable(level / "memory.stat"), 0)


def _droppable(stat: Path) -> int:
    for line in _text(stat).splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file") and value.isdecimal():
            return int(value)
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
