"""Window after window of one process: long ones of every thread, and between them short ones of the GIL's holder."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, filterfalse, repeat
from pathlib import Path
from typing import Final

from profiler.core.procfs import is_alive, wait_exit
from profiler.record.collectors._chrometrace import Span
from profiler.record.collectors._sources import Sources
from profiler.record.collectors._window import Plan, Window, open_window
from profiler.run.store import RunWriter

_SETTLE_S: Final = 0.1  # py-spy starts (10 to 20 ms) undisturbed by our conversion: its clock's zero is better known
_RETRY_S: Final = (0.05, 1.0)  # first and longest pause after a py-spy that could not attach
_PATIENCE_S: Final = 3.0  # for py-spy to notice that its process has ended, before it is told
_COST: Final = 0.015  # share of a core that sampling one process may take; its target loses twice that: of a small
# transformer, 0.5 ms for a sample of 0.26 ms, the caches that it empties being the rest
_LATER: Final = 0.0075  # the same once there are _ENOUGH samples
_ENOUGH: Final = 500  # of them a share of a half has an error of 4.5 points
_LOWEST: Final = 20  # samples a second: fewer leave a run of some seconds without an answer
_LENGTHS: Final = ((2, 1), (2, 2), (4, 3))  # s of the first windows: so a short run has both kinds
_LONGEST: Final = (8, 5)  # what a kill -9 of the recorder loses


@dataclass(frozen=True, slots=True)
class Equipment:
    """What all lanes share."""

    program: str
    """The path of py-spy."""
    folder: Path
    writer: RunWriter
    preempts: bool


class Lane:
    """A thread in the recorder that keeps one py-spy at work on `pid` until that ends, or `stop`."""

    def __init__(self, equipment: Equipment, pid: int, rate: int) -> None:
        self.pid = pid
        self.records = self.dropped = self.windows = self.lost = 0
        self.cost_s = 0.0
        self.refusal = self.error = ""
        self.lost_seat = False
        self._equipment = equipment
        self._rate = self._highest = rate
        self._taken = 0
        self._known: frozenset[int] = frozenset()
        self._sources = Sources(pid)
        self._window: Window | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"stacks of {pid}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> None:
        """Open no other window; the one of a process that lives is told to write what it has."""
        self._ended.set()
        if is_alive(self.pid):
            self._signal(signal.SIGINT)

    def join(self) -> None:
        """Until its thread has ended. py-spy sees by itself that its process has gone; one that does not is told."""
        self._ended.set()
        for sign in (signal.SIGINT, signal.SIGKILL):
            self._thread.join(_PATIENCE_S)
            if self._thread.is_alive():
                self._signal(sign)
        self._thread.join()

    def _signal(self, number: signal.Signals) -> None:
        window = self._window
        if window is not None:
            window.signal(number)

    def _run(self) -> None:
        try:
            self._record()
        except Exception as error:  # noqa: BLE001 - the edge of a thread, and the status reports it
            self.error = f"{type(error).__name__}: {' '.join(str(error).split())}"
            self._abandon()
        finally:
            self.cost_s += time.thread_time()
            self._sources, self._known = Sources(self.pid), frozenset()  # of processes without end, none is remembered

    def _abandon(self) -> None:
        """After an error the window that was open then is not left behind."""
        window = self._window
        if window is not None and window.process.returncode is None:
            window.signal(signal.SIGKILL)
            window.process.wait()

    def _record(self) -> None:
        """While one window records, the one before is converted."""
        pause = _RETRY_S[0]
        done: Window | None = None
        plans = self._plans()
        plan = next(plans)
        while not self._ended.is_set() and is_alive(self.pid):
            window = self._open(plan)
            if done:
                wait_exit(window.process.pid, _SETTLE_S)
                self._write(done)
                done = None
            wrote = window.wait()
            self.lost_seat = self.lost_seat or window.refused
            if wrote:
                done, pause = window, _RETRY_S[0]
                samples = plan.seconds * plan.rate
                self._taken += 0 if plan.gil else samples
                share = _COST if self._taken < _ENOUGH else _LATER
                self._rate = affordable(window.cpu_s - window.start_s, samples, self._highest, share)
                plan = next(plans)
            else:
                reason = window.reason()
                self.lost += window.killed and not self._ended.is_set()
                if not self._ended.is_set() or not self.refusal:  # one that was told to end says no more why
                    self.refusal = reason
                self._ended.wait(pause)
                pause = min(_RETRY_S[1], pause * 2)
            self.cost_s += window.cpu_s
        if done:
            self._write(done)

    def _plans(self) -> Iterator[Plan]:
        for lengths in chain(_LENGTHS, repeat(_LONGEST)):
            for gil, seconds in enumerate(lengths):
                yield Plan(self.pid, seconds, self._rate, bool(gil), self._equipment.preempts and not self.lost_seat)

    def _open(self, plan: Plan) -> Window:
        self.windows += 1
        stem = self._equipment.folder / f"window-{self.pid}-{self.windows}"
        self._window = window = open_window(self._equipment.program, plan, stem, self._known)
        if self._ended.is_set():  # told between the look at it and its start
            wait_exit(window.process.pid, _SETTLE_S)
            window.signal(signal.SIGINT)
        return window

    def _write(self, done: Window) -> None:
        converted = done.convert()
        writer = self._equipment.writer
        rows = list(filterfalse(_torn, converted.rows))
        writer.stacks(rows, table="gil_stacks" if done.plan.gil else "stacks")
        writer.samples(converted.end, converted.values + self._sources.fresh({row.frames for row in rows}))
        self._known = self._known.union(row.tid for row in rows)
        self.records += len(rows)
        self.dropped += converted.errors + len(converted.rows) - len(rows)


def _torn(row: Span) -> bool:
    """Whether a frame was read while the thread, which is not stopped, changed it: names of such are any bytes."""
    return any("\0" in file or "\0" in function for file, _, function in row.frames)


def affordable(cpu_s: float, samples: int, highest: int, share: float) -> int:
    """The rate at which sampling, its start left out, stays within `share` of a core.

    A sample took 0.25 ms, and 0.015 ms more for every frame.
    """
    return max(min(_LOWEST, highest), min(highest, int(share * samples / max(cpu_s, 1e-6))))
