"""Marks tensors of the CPU with the virtual devices that the program sees, by marks of their storages.

It also models the memory that a program's tensors use: which line allocated it, how much is in use, and when most was.
The model knows the storages of the tensors that operators return, in the blocks that the caching allocator of a GPU
gives for them. It does not know memory that an operator uses only while it runs, nor how an allocator caches and
fragments: it is a model, not a measurement.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import accumulate
from typing import Any, Final, NamedTuple
from weakref import ref

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
        """Return the device that a program names: by an index, a text, or none for the current one."""
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
    """Return the virtual device of a tensor; None for one on the CPU."""
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
    """Tell whether a value that a function got as its device names a CUDA device."""
    if type(device) is str:
        return device.startswith("cuda")
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, int) and not isinstance(device, bool)


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors among values and in lists and tuples of them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


def is_mask(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in (torch.bool, torch.uint8)


# ---------------------------------------------------------------- memory by lines


_storage: Final = Tensor.untyped_storage
_SITE: Final = 48
"""Bit of an event from which on it has the number of the line, from 1 on."""
_SIZE: Final = (1 << _SITE) - 1
_NONE: Final = (0, 0)
"""Number and bytes of no storages."""


class MemoryChanges(NamedTuple):
    """What has changed in a while, by the line that allocated the memory."""

    allocated: dict[int, tuple[int, int]]
    """Number and bytes of the storages that were allocated."""
    growth: dict[int, tuple[int, int]]
    """By how many storages and bytes more are in use than before."""
    peak: dict[int, int]
    """Bytes in use at the moment at which most were."""


class _Block(ref[Any]):
    """The storage of a tensor, until it is freed."""

    __slots__ = ("event", "key")
    event: int
    key: int


class MemoryModel:
    """The storages that exist, and what has happened to them since the last call of `changes`."""

    def __init__(self) -> None:
        self._on_free = self._free  # making a bound method takes time
        self._blocks: dict[int, _Block] = {}
        """By the address of the storage."""
        self._events: list[int] = []
        """Line and bytes of each allocation in one number, negative for a release: numbers are no work for Python's
        garbage collector, as tuples would be."""
        self._in_use: dict[int, int] = {}
        """Bytes at the last call of `changes`, by line."""

    def add(self, result: Any, site: int) -> None:
        """Note the storages of what an operator returned that the line `site` called."""
        if isinstance(result, Tensor):
            try:
                storage = _storage(result)
            except (RuntimeError, NotImplementedError):  # a sparse layout, or a wrapper without memory
                return
            key = storage._cdata
            if key not in self._blocks and (size := storage.nbytes()):
                block = self._blocks[key] = _Block(storage, self._on_free)
                block.key, block.event = key, ((site + 1) << _SITE) + -(-size // BLOCK) * BLOCK
                self._events.append(block.event)
        elif isinstance(result, (tuple, list)):
            for each in result:
                self.add(each, site)

    def _free(self, block: _Block) -> None:
        if self._blocks.get(block.key) is block:
            del self._blocks[block.key]
        self._events.append(-block.event)

    def changes(self) -> MemoryChanges:
        """Return what has changed since the last call."""
        events, self._events = self._events, []
        # the bits of lines do not disturb the sum of those below, which begins where it cannot become negative
        totals = [total & _SIZE for total in accumulate(events, initial=1 << (_SITE - 1))]
        most = totals.index(max(totals))
        changes = MemoryChanges({}, {}, {})
        self._apply(events[:most], changes)
        changes.peak.update((site, size) for site, size in self._in_use.items() if size > 0)
        self._apply(events[most:], changes)
        self._in_use = {site: size for site, size in self._in_use.items() if size > 0}
        return changes

    def _apply(self, events: list[int], changes: MemoryChanges) -> None:
        """Add events, in any order, to what is in use and to what has changed."""
        in_use, allocated, growth = self._in_use, changes.allocated, changes.growth
        for event, number in Counter(events).items():  # a step has few different ones
            if event > 0:
                site, size = (event >> _SITE) - 1, number * (event & _SIZE)
                numbers, sizes = allocated.get(site, _NONE)
                allocated[site] = numbers + number, sizes + size
            else:
                site, size, number = (-event >> _SITE) - 1, -number * (-event & _SIZE), -number
            numbers, sizes = growth.get(site, _NONE)
            growth[site] = numbers + number, sizes + size
            in_use[site] = in_use.get(site, 0) + size
