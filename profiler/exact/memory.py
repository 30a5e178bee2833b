"""Models the memory that a program's tensors use: which line allocated it, how much is in use, and when most was.

It knows the storages of the tensors that operators return, in the blocks that the caching allocator of a GPU gives for
them. It does not know memory that an operator uses only while it runs, nor how an allocator caches and fragments: it is
a model, not a measurement.
"""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import Any, Final, NamedTuple
from weakref import ref

from torch import Tensor

from profiler.exact.marks import BLOCK

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
        """What has changed since the last call."""
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
