"""Decides which devices get work and how many workers each, from free memory and the memory of a first worker."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig, memory_of

CPU: Final = "cpu"
CUDA: Final = "cuda"
AUTO: Final = "auto"
_LOOK_EVERY_S: Final = 1.0
"""Seconds between two looks at devices that are too busy: the load of a CPU is a mean over the last minute."""
_log: Final = logging.getLogger(__name__)


class WorkerSlot(NamedTuple):
    """The device that a worker uses."""

    device: str
    """Torch's name for it in the worker: cpu, cuda:0, ..."""
    name: str
    """Name of the device, unique among all machines."""
    sharing: int = 1
    """Number of workers that share the device's memory."""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory of a worker's device in bytes after its first work (None: unknown)."""

    used: int | None
    """Memory that the worker holds."""
    total: int | None
    free: int | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """The state of a device before the sweep uses it."""

    name: str
    total: int | None
    """Bytes."""
    free: int | None
    load: float | None
    """Share of it that other programs use; None: unknown."""


def kind_of(name: str) -> str:
    """The kind of device, cpu or cuda, that has this name on this machine; `auto` selects CUDA if it is available."""
    kind, _, number = name.partition(":")
    if name not in (AUTO, CPU, CUDA) and not (kind == CUDA and number.isdecimal()):
        raise TrainerError(f"unknown device {name!r}: choose one of auto, cpu, cuda, cuda:0, cuda:1, ...")
    if name == CPU:
        return CPU
    from reference_trainer.devices import cuda_or

    return cuda_or(CPU, name)[0]


def find_free_devices(name: str, config: PerformanceConfig, workers: int | None = None) -> Placement:
    """Find the devices of that name that are free enough, or get so within `max_load_wait`; the least busy comes first.

    :param workers: number of workers, whatever memory they take; None: as many as fit.
    """
    names = [CPU] if kind_of(name) == CPU else _gpus(name)
    began, is_announced = time.monotonic(), False
    while True:
        why_not = {device: _too_busy(device, config) for device in map(look, names)}
        waited = time.monotonic() - began
        remaining = config.max_load_wait - waited
        # only a load falls by itself
        if not all(why_not.values()) or remaining <= 0 or not any(_is_over_load(device, config) for device in why_not):
            break
        if not is_announced:
            _log.warning("waiting at most %g s: %s", config.max_load_wait, "; ".join(why_not.values()))
            is_announced = True
        time.sleep(min(remaining, _LOOK_EVERY_S))
    left_out = tuple(filter(None, why_not.values()))
    if len(left_out) == len(names):
        after = f" after {waited:.1f} s" if waited >= 0.1 else ""
        raise TrainerError(f"no device has room for a sweep{after}: {'; '.join(left_out)}")
    fit = (device for device, why in why_not.items() if not why)
    devices = sorted(fit, key=lambda device: (device.load or 0, -(device.free or 0)))
    return Placement(tuple(devices[: config.num_devices]), config.max_memory, workers, left_out)


def look(name: str) -> Device:
    """The current state of a device."""
    stats = memory_of(name)
    return Device(name, stats.total, stats.free, _load(name))


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class Placement:
    """The devices of a sweep, and the limits on what they may hold."""

    devices: tuple[Device, ...]
    max_memory: float = 1.0
    """Share of a device's memory that may be in use."""
    workers: int | None = None
    """Number of requested workers."""
    left_out: tuple[str, ...] = ()
    """Devices that get no work, and why."""
    limit: int | None = None
    """Maximum number of workers, since more would have no work."""

    @property
    def kind(self) -> str:
        return CPU if self.devices[0].name == CPU else CUDA

    def first(self) -> list[WorkerSlot]:
        """One worker per device: the memory that it takes is unknown."""
        count = self._at_most(len(self.devices) if self.workers is None else self.workers)
        return [WorkerSlot(device.name, device.name) for device in self.devices[:count]]

    def rest(self, memory_use: Sequence[MemoryUse]) -> list[WorkerSlot]:
        """The other workers, placed on the devices in turn; the first worker of each device took `memory_use`."""
        devices = [*zip(self.devices, memory_use, strict=False)]
        wanted = cores() if self.workers is None else self.workers  # each needs a core to launch from
        missing = max(0, self._at_most(wanted) - len(devices))
        room = {device.name: missing if self.workers else self._fit(device, use) - 1 for device, use in devices}
        turns = (name for turn in range(missing) for name, more in room.items() if turn < more)
        return [WorkerSlot(name, name) for name in islice(turns, missing)]

    def _at_most(self, workers: int) -> int:
        return workers if self.limit is None else min(workers, self.limit)

    def share(self, memory_use: MemoryUse) -> float:
        """Share of a device that a worker gets because of its memory, above 0 and at most 1."""
        if not memory_use.used or not memory_use.total:
            return 1.0
        return min(1.0, memory_use.used / (self.max_memory * memory_use.total))

    def _fit(self, device: Device, memory_use: MemoryUse) -> int:
        """Number of workers that fit into the device's memory; at least one, which is there already."""
        before, after = device.free, memory_use.free
        used = memory_use.used or 0
        if device.name != CPU and before is not None and after is not None:
            used = max(used, before - after)  # not in the allocator's count: CUDA itself takes some hundred MB
        if not used or device.total is None or before is None:
            return 1 if device.name != CPU else cores()
        allowed = self.max_memory * device.total - (device.total - before)
        return max(1, int(allowed / used))


def shared(slots: Sequence[WorkerSlot]) -> list[WorkerSlot]:
    """The slots, each with the number of slots on its device."""
    counts = Counter(slot.name for slot in slots)
    return [slot._replace(sharing=counts[slot.name]) for slot in slots]


def memory_use(name: str) -> MemoryUse:
    """The memory that this process uses on a device now."""
    stats = memory_of(name)
    used = stats.allocated if name == CPU else stats.reserved
    return MemoryUse(used, stats.total, stats.free)


def _gpus(name: str) -> list[str]:
    import torch

    available = [f"{CUDA}:{number}" for number in range(torch.cuda.device_count())]
    if name in (AUTO, CUDA):
        return available
    if name not in available:
        raise TrainerError(f"device {name}: there is no such device, choose one of {', '.join(available)}")
    return [name]


def gpu_load(name: str) -> float:
    """Share of the last moment in which a GPU was busy, as its driver reports it."""
    import torch

    return torch.cuda.utilization(name) / 100


def _load(name: str) -> float | None:
    if name == CPU:
        return os.getloadavg()[0] / cores()
    try:
        return gpu_load(name)
    except Exception:  # noqa: BLE001 - NVML and torch raise errors of their own; after any of them the load is unknown
        return None


def _is_over_load(device: Device, config: PerformanceConfig) -> bool:
    return config.max_load < 1 and device.load is not None and device.load > config.max_load


def _too_busy(device: Device, config: PerformanceConfig) -> str:
    """Why a device gets no work; empty: it gets work."""
    if _is_over_load(device, config):
        return f"{device.name} is busy at {device.load:.0%}, max_load is {config.max_load:.0%}"
    if device.total and device.free is not None and 1 - device.free / device.total > config.max_memory:
        used = 1 - device.free / device.total
        return f"{device.name} has {used:.0%} of its memory in use, max_memory is {config.max_memory:.0%}"
    return ""
