"""Tracks of a trace: whose they are, what they are called, and the numbers that stand for them in its events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Final

from profiler.report.render._traced import Names
from profiler.run.model import Run

_MADE_UP: Final = 10_000_000
"""Numbers of tracks that are no process or thread of the run begin here: the system gives none so high."""


class Tracks:
    """Gives each track its `"pid":1,"tid":2`, the text in every event of it; says afterwards which there are."""

    def __init__(self, run: Run) -> None:
        self._names = Names(run)
        self._label = run.info.label or "program"
        self._numbers: dict[tuple[str, int, int], int] = {}
        self._flows: dict[tuple[int, int], int] = {}
        self._arrows = count()
        self._processes: dict[int, tuple[str, tuple[int, int]]] = {}
        self._threads: dict[tuple[int, int], tuple[str, int]] = {}

    def process(self, pid: int) -> int:
        if pid not in self._processes:
            self._processes[pid] = self._names.process(pid), (int(self._names.first(pid)[0]), pid)
        return pid

    def machine(self) -> int:
        """What belongs to no process: the cores, the memory, the GPUs."""
        number = self._number("machine", 0, 0)
        self._processes[number] = "machine", (3, 0)
        return number

    def thread(self, pid: int, tid: int) -> str:
        self._threads[self.process(pid), tid] = self._names.thread(pid, tid), 2 if pid == tid else 5
        return _track(pid, tid)

    def steps(self, pid: int, tid: int) -> str:
        """Steps have a track of their own: a region may go on over their boundaries."""
        return self._beside("steps", pid, tid, "steps", 1)

    def operators(self, pid: int, tid: int) -> str:
        return self._of_thread("torch operators", pid, tid, 3)

    def stacks(self, pid: int, tid: int) -> str:
        return self._of_thread("sampled stacks", pid, tid, 4)

    def queue(self, pid: int, device: int, stream: int) -> str:
        """A queue of a device: what ran there for one process."""
        process = self._number("device", pid, device)
        self._processes[process] = f"device {device} of {self._names.process(pid)}", (2, process)
        number = self._number(f"queue {device}", pid, stream)
        self._threads[process, number] = f"queue {stream}", stream
        return _track(process, number)

    def flow(self, pid: int, correlation: int) -> int:
        """The number of an arrow: given out at its one end and given up at its other, so that few are kept."""
        number = self._flows.pop((pid, correlation), None)
        if number is None:
            number = self._flows[pid, correlation] = next(self._arrows)
        return number

    def _of_thread(self, kind: str, pid: int, tid: int, place: int) -> str:
        return self._beside(kind, pid, tid, f"{self._names.thread(pid, tid)}: {kind}", place + (3 if pid != tid else 0))

    def _beside(self, kind: str, pid: int, tid: int, name: str, place: int) -> str:
        number = self._number(kind, pid, tid)
        self._threads[self.process(pid), number] = name, place
        return _track(pid, number)

    def _number(self, kind: str, one: int, other: int) -> int:
        return self._numbers.setdefault((kind, one, other), _MADE_UP + len(self._numbers))

    def named(self) -> Iterator[str]:
        """The metadata events that name and order everything that was asked for."""
        order = sorted(self._processes, key=lambda pid: self._processes[pid][1])
        for place, pid in enumerate(order):
            yield _metadata("process_name", _track(pid, 0), {"name": self._processes[pid][0]})
            yield _metadata("process_sort_index", _track(pid, 0), {"sort_index": place})
        for (pid, tid), (name, place) in self._threads.items():
            yield _metadata("thread_name", _track(pid, tid), {"name": name})
            yield _metadata("thread_sort_index", _track(pid, tid), {"sort_index": place})


def _track(pid: int, tid: int) -> str:
    return f'"pid":{pid},"tid":{tid}'


def _metadata(name: str, track: str, args: dict[str, str | int]) -> str:
    return f'{{"ph":"M","name":"{name}",{track},"args":{json.dumps(args)}}}'
