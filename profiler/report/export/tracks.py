"""Rows in order, names of processes and threads, and numbers of tracks, for the writers of traces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profiler.core.metrics import THREAD_NAME
from profiler.run.model import Run, Table

EXPORTER: Final = "python -m profiler export"
_BLOCK: Final = 1 << 15  # rows that are Python objects at a time: bounds the memory of a writer for runs of any size
_TEXTS: Final = 1 << 11  # events that are joined before they are written
_FIRST_NUMBER: Final = 10_000_000
"""Tracks that are no process or thread are numbered from here: the kernel's PIDs end at 4,194,304."""


def rows(table: Table, columns: Sequence[str], order: npt.NDArray[np.int64] | None = None) -> Iterator[tuple[Any, ...]]:
    """Yield the values of `columns` as tuples, in `order`; never more than a block of them in memory at once."""
    length = len(table) if order is None else len(order)
    for start in range(0, length, _BLOCK):
        block = table[start : start + _BLOCK] if order is None else table[order[start : start + _BLOCK]]
        yield from zip(*(block[name].tolist() for name in columns), strict=True)


def outer_first(table: Table) -> npt.NDArray[np.int64]:
    """Return the order by begin; of rows that begin together the longest, which contains the others, comes first."""
    order: npt.NDArray[np.int64] = np.lexsort((-table["end"], table["begin"])).astype(np.int64)
    return order


def join(texts: Iterable[str], separator: str) -> Iterator[str]:
    """`texts` with `separator` between them, in chunks that are worth a write."""
    pending: list[str] = []
    before = ""
    for text in texts:
        pending.append(text)
        if len(pending) >= _TEXTS:
            yield before + separator.join(pending)
            before = separator
            pending.clear()
    if pending:
        yield before + separator.join(pending)


class ProcessNames:
    """The names of the processes and threads of a run."""

    def __init__(self, run: Run) -> None:
        self._label = run.info.label or "program"
        first_rows = (table for table in (run.steps, run.regions, run.calls, run.stacks) if len(table))
        first = next(first_rows, None)
        self.main_pid = int(first["pid"][0]) if first is not None else 0
        self._ranks: dict[int, int] = {}
        if len(np.unique(run.steps["rank"])) > 1:
            self._ranks = dict(zip(run.steps["pid"].tolist(), run.steps["rank"].tolist(), strict=True))
        names = {n: text.removeprefix(THREAD_NAME) for n, text in enumerate(run.names) if text.startswith(THREAD_NAME)}
        samples = run.samples[np.isin(run.samples["name"], list(names))]
        self._threads = {(pid, tid): names[name] for pid, tid, name in rows(samples, ("pid", "tid", "name"))}

    def process(self, pid: int) -> str:
        if pid in self._ranks:
            return f"{self._label} rank {self._ranks[pid]}"
        return self._label if pid == self.main_pid else f"process {pid}"

    def thread(self, pid: int, tid: int) -> str:
        return "main" if pid == tid else self._threads.get((pid, tid), f"thread {tid}")


class Tracks:
    """Gives each track the `"pid":1,"tid":2` that stands in its events, and afterwards the events that name them."""

    def __init__(self, run: Run) -> None:
        self._names = ProcessNames(run)
        self._numbers: dict[tuple[str, int, int], int] = {}
        self._flows: dict[tuple[int, int], int] = {}
        self._arrows = count()
        self._processes: dict[int, tuple[str, tuple[int, int]]] = {}
        """Name and sort key; the process with the steps comes first, then the others, devices and the machine."""
        self._threads: dict[tuple[int, int], tuple[str, int]] = {}

    def process(self, pid: int) -> int:
        if pid not in self._processes:
            self._processes[pid] = self._names.process(pid), (int(pid != self._names.main_pid), pid)
        return pid

    def machine(self) -> int:
        """Return the track of everything that belongs to no process: the cores, the memory, the GPUs."""
        number = self._number("machine", 0, 0)
        self._processes[number] = "machine", (3, 0)
        return number

    def thread(self, pid: int, tid: int) -> str:
        self._threads[self.process(pid), tid] = self._names.thread(pid, tid), 2 if pid == tid else 5
        return _track(pid, tid)

    def steps(self, pid: int, tid: int) -> str:
        """Give steps their own track, because a region may cross their boundaries."""
        return self._thread_track("steps", pid, tid, "steps", 1)

    def operators(self, pid: int, tid: int) -> str:
        return self._thread_track("torch operators", pid, tid, "", 3)

    def stacks(self, pid: int, tid: int) -> str:
        return self._thread_track("sampled stacks", pid, tid, "", 4)

    def queue(self, pid: int, device: int, stream: int) -> str:
        """Return a queue of a device: what ran there for one process."""
        process = self._number("device", pid, device)
        self._processes[process] = f"device {device} of {self._names.process(pid)}", (2, process)
        number = self._number(f"queue {device}", pid, stream)
        self._threads[process, number] = f"queue {stream}", stream
        return _track(process, number)

    def flow(self, pid: int, correlation: int) -> int:
        """Return the number of an arrow. It is forgotten at the arrow's second end, so that few are in memory."""
        number = self._flows.pop((pid, correlation), None)
        if number is None:
            number = self._flows[pid, correlation] = next(self._arrows)
        return number

    def _thread_track(self, kind: str, pid: int, tid: int, name: str, position: int) -> str:
        number = self._number(kind, pid, tid)
        if not name:
            name = f"{self._names.thread(pid, tid)}: {kind}"
            position += 3 if pid != tid else 0
        self._threads[self.process(pid), number] = name, position
        return _track(pid, number)

    def _number(self, kind: str, group: int, member: int) -> int:
        return self._numbers.setdefault((kind, group, member), _FIRST_NUMBER + len(self._numbers))

    def metadata(self) -> Iterator[str]:
        """Yield the events that name and order all tracks that were used."""
        order = sorted(self._processes, key=lambda pid: self._processes[pid][1])
        for position, pid in enumerate(order):
            yield _metadata("process_name", _track(pid, 0), {"name": self._processes[pid][0]})
            yield _metadata("process_sort_index", _track(pid, 0), {"sort_index": position})
        for (pid, tid), (name, position) in self._threads.items():
            yield _metadata("thread_name", _track(pid, tid), {"name": name})
            yield _metadata("thread_sort_index", _track(pid, tid), {"sort_index": position})


def _track(pid: int, tid: int) -> str:
    return f'"pid":{pid},"tid":{tid}'


def _metadata(name: str, track: str, args: dict[str, str | int]) -> str:
    return f'{{"ph":"M","name":"{name}",{track},"args":{json.dumps(args)}}}'
