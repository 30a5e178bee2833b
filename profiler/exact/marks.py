"""Marks tensors of the CPU with the virtual devices that the program sees, by marks of their storages."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Parameter

from profiler.exact import private_api
from profiler.exact.model import Card, EventSink

CPU: Final = torch.device("cpu")
storage_of: Final = Tensor.untyped_storage
BLOCK: Final = 512
"""Bytes: the unit of CUDA's caching allocator (kMinBlockSize in c10/cuda/CUDACachingAllocator.h)."""


# ---------------------------------------------------------------- devices


class Allocation:
    """The memory of one storage on a virtual device; it is freed when the storage is."""

    __slots__ = ("memory", "size")

    def __init__(self, memory: DeviceMemory, size: int) -> None:
        self.memory, self.size = memory, -(-size // BLOCK) * BLOCK
        memory.allocated += self.size
        memory.allocations += 1
        memory.peak = max(memory.peak, memory.allocated)

    def __del__(self) -> None:
        self.memory.allocated -= self.size


class DeviceMemory:
    """Bytes of storages on a virtual device. Storages that only C++ code sees are not among them."""

    __slots__ = ("allocated", "allocations", "peak")

    def __init__(self) -> None:
        self.allocated = self.peak = self.allocations = 0


class Machine:
    """The virtual devices of a process."""

    def __init__(self, count: int, card: Card, sink: EventSink) -> None:
        self.card, self.sink = card, sink
        self.devices = tuple(torch.device("cuda", index) for index in range(count))
        self.memory = tuple(DeviceMemory() for _ in self.devices)
        self._local = threading.local()

    @property
    def current(self) -> int:
        """Index of the current device of this thread."""
        return getattr(self._local, "current", 0)

    @current.setter
    def current(self, index: int) -> None:
        self._local.current = self.device(index).index

    def share_current_device(self, other: Machine) -> None:
        """Have the same current device as another machine in each thread."""
        self._local = other._local

    def device(self, value: Any = None) -> torch.device:
        """The device that a program names: by an index, a text, or none for the current one."""
        if value is None:
            return self.devices[self.current]
        if not isinstance(value, int):
            named = torch.device(value)
            value = self.current if named.index is None else named.index
        if not 0 <= value < len(self.devices):
            raise RuntimeError(f"CUDA error: invalid device ordinal {value}: {len(self.devices)} virtual devices")
        chosen: torch.device = self.devices[value]
        return chosen


# ---------------------------------------------------------------- marks of storages


def device_of(tensor: Any) -> torch.device | None:
    """The virtual device of a tensor; None for one on the CPU."""
    try:
        device = getattr(storage_of(tensor), "virtual_device", None)
    except (RuntimeError, NotImplementedError):  # a sparse layout, or a wrapper of torch.func
        device = getattr(tensor, "virtual_device", None)
    if device is None and type(tensor) is not Parameter and (inner := private_api.unwrapped(tensor)) is not tensor:
        return device_of(inner)
    return device


_page_locked: Final[dict[int, int]] = {}
"""Begin and end of each piece of memory of the CPU that is page-locked. Arrays of NumPy may lie in it too."""


class _PageLocked:
    """The page-locked memory of one storage; it ends with the storage."""

    __slots__ = ("all", "begin")

    def __init__(self, begin: int, size: int) -> None:
        self.all, self.begin = _page_locked, begin  # at the end of the process the name is gone before the storage
        _page_locked[begin] = begin + size

    def __del__(self) -> None:
        self.all.pop(self.begin, None)


def is_pinned(tensor: Tensor) -> bool:
    try:
        begin = storage_of(tensor).data_ptr()
    except (RuntimeError, NotImplementedError):
        return False
    return begin in _page_locked or any(first <= begin < end for first, end in list(_page_locked.items()))


def lock_pages(tensor: Tensor) -> None:
    storage: Any = storage_of(tensor)
    storage.virtual_pinned = _PageLocked(storage.data_ptr(), storage.nbytes())


def is_on_host(tensor: Tensor) -> bool:
    try:
        return getattr(storage_of(tensor), "virtual_host", False)
    except (RuntimeError, NotImplementedError):
        return False


def keep_on_host(result: Any) -> None:
    """Remember that tensors are on the CPU, where unmarked ones are on a device: within a backward pass."""
    for tensor in tensors_in((result,)):
        with suppress(RuntimeError, NotImplementedError):  # a sparse layout
            storage_of(tensor).virtual_host = True  # type: ignore[attr-defined]


def named_cuda(device: Any) -> bool:
    """Whether a value that a function got as its device names a CUDA device."""
    if type(device) is str:
        return device.startswith("cuda")
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, int) and not isinstance(device, bool)


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among values and in lists and tuples of them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


def is_mask(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in (torch.bool, torch.uint8)
