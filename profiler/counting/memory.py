"""A model of the memory that a program's tensors use: which line allocated it, how much is in use, and when most was.

It knows the storages of the tensors that operators return, with their sizes in bytes. It does not know memory that an
operator uses only while it runs, nor how an allocator rounds, caches and fragments: it is a model, not a measurement.
"""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final, NamedTuple
from weakref import ref

from torch import Tensor

_storage: Final = Tensor.untyped_storage


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

    __slots__ = ("key", "site", "size")
    key: int
    site: int
    size: int


class MemoryModel:
    """The storages that exist, and what has happened to them since the last call of `changes`."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        """By the address of the storage."""
        self._events: list[tuple[int, int]] = []
        """Line and bytes of each allocation and release; the bytes of a release are negative."""
        self._in_use: Counter[int] = Counter()
        """Bytes at the last call of `changes`, by line."""

    def add(self, result: Any, site: int) -> None:
        """Note the storages of what an operator returned that the line `site` called."""
        if isinstance(result, Tensor):
            try:
                storage = _storage(result)
            except (RuntimeError, NotImplementedError):  # a sparse layout, or a wrapper without memory
                return
            self._add(storage, site)
        elif isinstance(result, (tuple, list)):
            for each in result:
                self.add(each, site)

    def _add(self, storage: Any, site: int) -> None:
        key = storage._cdata
        if key in self._blocks:
            return
        size = storage.nbytes()
        if size:
            block = self._blocks[key] = _Block(storage, self._free)
            block.key, block.site, block.size = key, site, size
            self._events.append((site, size))

    def _free(self, block: _Block) -> None:
        if self._blocks.get(block.key) is block:
            del self._blocks[block.key]
        self._events.append((block.site, -block.size))

    def changes(self) -> MemoryChanges:
        """What has changed since the last call."""
        events, self._events = self._events, []
        totals = list(accumulate(map(itemgetter(1), events), initial=0))
        most = totals.index(max(totals))
        peak, allocated, growth = self._in_use.copy(), _Amounts(), _Amounts()
        for (site, change), number in Counter(events[:most]).items():
            peak[site] += number * change
        for (site, change), number in Counter(events).items():
            self._in_use[site] += number * change
            growth.add(site, number if change > 0 else -number, number * change)
            if change > 0:
                allocated.add(site, number, number * change)
        self._in_use = +self._in_use
        return MemoryChanges(allocated.sums, growth.sums, +peak)


class _Amounts:
    """Number and bytes by line."""

    def __init__(self) -> None:
        self.sums: dict[int, tuple[int, int]] = {}

    def add(self, site: int, number: int, size: int) -> None:
        before = self.sums.get(site, (0, 0))
        self.sums[site] = before[0] + number, before[1] + size
