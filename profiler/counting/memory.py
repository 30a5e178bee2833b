"""A model of the memory that a program's tensors use: which line allocated it, how much is in use, and when most was.

It knows the storages of the tensors that operators return, with their sizes in bytes. It does not know memory that an
operator uses only while it runs, nor how an allocator rounds, caches and fragments: it is a model, not a measurement.
"""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import Any, Final, NamedTuple
from weakref import ref

from torch import Tensor

_storage: Final = Tensor.untyped_storage
_SITE: Final = 48
"""Bit of an event from which on it has the number of the line, from 1 on."""
_SIZE: Final = (1 << _SITE) - 1


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
        self._in_use: Counter[int] = Counter()
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
                block.key, block.event = key, ((site + 1) << _SITE) + size
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
        sizes = (event & _SIZE if event > 0 else -(-event & _SIZE) for event in events)
        totals = list(accumulate(sizes, initial=0))
        most = totals.index(max(totals))
        peak, allocated, growth = self._in_use.copy(), _Amounts(), _Amounts()
        for event, number in Counter(events[:most]).items():
            site, size = (abs(event) >> _SITE) - 1, number * (abs(event) & _SIZE)
            peak[site] += size if event > 0 else -size
        for event, number in Counter(events).items():
            site, size = (abs(event) >> _SITE) - 1, number * (abs(event) & _SIZE)
            if event > 0:
                allocated.add(site, number, size)
                growth.add(site, number, size)
                self._in_use[site] += size
            else:
                growth.add(site, -number, -size)
                self._in_use[site] -= size
        self._in_use = +self._in_use
        return MemoryChanges(allocated.sums, growth.sums, +peak)


class _Amounts:
    """Number and bytes by line."""

    def __init__(self) -> None:
        self.sums: dict[int, tuple[int, int]] = {}

    def add(self, site: int, number: int, size: int) -> None:
        before = self.sums.get(site, (0, 0))
        self.sums[site] = before[0] + number, before[1] + size
