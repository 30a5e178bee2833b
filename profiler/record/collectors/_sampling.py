"""Samples one process in window after window of py-spy, in a thread of the recorder."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import chain, filterfalse, repeat
from pathlib import Path
from typing import Final

from profiler.core.procfs import is_alive, wait_exit
from profiler.core.samples import SOURCE_LINE
from profiler.record.collector import Context, describe_error
from profiler.record.collectors._pyspy import Refusal, SamplingWindow, WindowPlan
from profiler.record.collectors._traces import Span
from profiler.run.store import RECORDER, Frame

_SETTLE_S: Final = 0.1
"""py-spy starts (10 to 20 ms) undisturbed by our conversion, so that its clock's zero is better known."""
_RETRY_S: Final = (0.05, 1.0)
"""First and longest pause after a py-spy that could not attach."""
_END_S: Final = 3.0
"""For py-spy to notice that its process has ended, before it gets a signal."""


# ---------------------------------------------------------------- which window comes next

_WINDOWS_S: Final = ((2, 1), (2, 2), (4, 3))
"""Seconds of the first windows, of all threads and of the GIL's holder: so that a short run has both kinds."""
_LATER_WINDOWS_S: Final = (8, 5)
"""A kill -9 of the recorder loses one of them."""
_COST: Final = 0.015
"""Share of a core that sampling one process may take. Its target loses twice that: of a small transformer, 0.5 ms for a
sample of 0.26 ms, the rest by the caches that the sample empties."""
_LATER_COST: Final = 0.0075
"""The same once there are _ENOUGH_SAMPLES."""
_ENOUGH_SAMPLES: Final = 500
"""With so many samples a share of one half has an error of 4.5 percentage points."""
_LOWEST_RATE: Final = 20
"""Samples a second: fewer leave a run of some seconds without an answer."""


class SamplingSchedule:
    """Windows of all threads alternate with short ones of the GIL's holder; deep stacks are sampled at a lower rate."""

    def __init__(self, pid: int, highest_rate: int, *, preempt: bool) -> None:
        self.preempt = preempt
        self._pid = pid
        self._rate = self._highest = highest_rate
        self._samples = 0
        lengths = chain(_WINDOWS_S, repeat(_LATER_WINDOWS_S))
        self._windows = ((seconds, bool(gil)) for pair in lengths for gil, seconds in enumerate(pair))
        self._window = next(self._windows)

    def plan(self) -> WindowPlan:
        """The window that comes next: the same one until it has `succeeded`."""
        seconds, gil = self._window
        return WindowPlan(self._pid, seconds, self._rate, gil, self.preempt)

    def succeeded(self, plan: WindowPlan, cpu_s: float) -> None:
        """Go on to the next window, at the rate that the budget affords.

        :param cpu_s: of py-spy for the samples of `plan`, its start left out.
        """
        samples = plan.seconds * plan.rate
        self._samples += 0 if plan.gil else samples
        share = _COST if self._samples < _ENOUGH_SAMPLES else _LATER_COST
        self._rate = affordable_rate(cpu_s, samples, self._highest, share)
        self._window = next(self._windows)


def affordable_rate(cpu_s: float, samples: int, highest: int, share: float) -> int:
    """The rate at which sampling stays within `share` of a core. A sample took 0.25 ms, and 0.015 ms per frame."""
    return max(min(_LOWEST_RATE, highest), min(highest, int(share * samples / max(cpu_s, 1e-6))))


# ---------------------------------------------------------------- one process


class ProcessSampler:
    """Keeps one py-spy at work on `pid` until that ends, or `end`."""

    def __init__(self, context: Context, program: str, pid: int, *, preempt: bool) -> None:
        """:param program: the path of py-spy."""
        self.pid = pid
        self.records = self.dropped = self.windows = self.killed_windows = 0
        self.cost_s = 0.0
        self.refusal: Refusal | None = None
        self.error = ""
        self._context = context
        self._program = program
        self._schedule = SamplingSchedule(pid, context.spec.stack_rate, preempt=preempt)
        self._python_threads: frozenset[int] = frozenset()
        self._lines = SourceLines(pid)
        self._window: SamplingWindow | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"stacks of {pid}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def preempts(self) -> bool:
        return self._schedule.preempt

    def end(self) -> None:
        """Open no other window; the one of a living process writes what it has."""
        self._ended.set()
        if is_alive(self.pid):
            self._signal(signal.SIGINT)

    def join(self) -> None:
        """Wait for the thread. py-spy notices that its process has ended; one that does not gets signals."""
        self._ended.set()
        for number in (signal.SIGINT, signal.SIGKILL):
            self._thread.join(_END_S)
            if self._thread.is_alive():
                self._signal(number)
        self._thread.join()

    def _signal(self, number: signal.Signals) -> None:
        window = self._window
        if window is not None:
            window.signal(number)

    def _run(self) -> None:
        try:
            self._record()
        except Exception as error:  # noqa: BLE001 - the edge of a thread, and the status reports it
            self.error = describe_error(error)
            window = self._window
            if window is not None and window.process.returncode is None:
                window.signal(signal.SIGKILL)
                window.process.wait()
        finally:
            self.cost_s += time.thread_time()
            # a job of hours may start processes without end: nothing large is kept of those that have ended
            self._lines, self._python_threads = SourceLines(self.pid), frozenset()

    def _record(self) -> None:
        """While one window records, the one before is converted."""
        pause = _RETRY_S[0]
        done: SamplingWindow | None = None
        while not self._ended.is_set() and is_alive(self.pid):
            plan = self._schedule.plan()
            window = self._open(plan)
            if done:
                wait_exit(window.process.pid, _SETTLE_S)
                self._write(done)
                done = None
            wrote = window.wait()
            self._schedule.preempt &= not window.lost_priority
            if wrote:
                done, pause = window, _RETRY_S[0]
                self._schedule.succeeded(plan, window.cpu_s - window.start_cpu_s)
            else:
                refusal = window.refusal()
                self.killed_windows += window.killed and not self._ended.is_set()
                if not self._ended.is_set() or not self.refusal:  # one that was ended by us gives no better reason
                    self.refusal = refusal
                self._ended.wait(pause)
                pause = min(_RETRY_S[1], pause * 2)
            self.cost_s += window.cpu_s
        if done:
            self._write(done)

    def _open(self, plan: WindowPlan) -> SamplingWindow:
        self.windows += 1
        stem = self._context.spec.out / RECORDER / f"window-{self.pid}-{self.windows}"
        self._window = window = SamplingWindow.start(self._program, plan, stem, self._python_threads)
        if self._ended.is_set():  # `end` came between the look at it and the start
            wait_exit(window.process.pid, _SETTLE_S)
            window.signal(signal.SIGINT)
        return window

    def _write(self, window: SamplingWindow) -> None:
        converted = window.convert()
        writer = self._context.writer
        spans = list(filterfalse(has_torn_frame, converted.spans))
        writer.stacks(spans, table="gil_stacks" if window.plan.gil else "stacks")
        writer.samples(converted.end, converted.values + self._lines.new_rows({span.frames for span in spans}))
        self._python_threads = self._python_threads.union(span.tid for span in spans)
        self.records += len(spans)
        self.dropped += converted.errors + len(converted.spans) - len(spans)


def has_torn_frame(span: Span) -> bool:
    """Whether a frame was read while the running thread changed it: its names are then any bytes."""
    return any("\0" in file or "\0" in function for file, _, function in span.frames)


# ---------------------------------------------------------------- the text of sampled lines

_LIBRARIES: Final = ("/site-packages/", "/dist-packages/", "/lib/python3")
_MAX_LINES: Final = 500
"""Lines that are read for one process."""
_MAX_FILE_BYTES: Final = 1 << 21
"""Longer files are not source code that a person wrote."""
_MAX_CHARACTERS: Final = 160
"""Characters that are kept of a line."""


class SourceLines:
    """The text of the lines that samples name, each read once, while the program runs: later the file may have changed.

    Files are looked for in the process's own root and working directory, which a container has of its own.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._requested: set[tuple[str, int]] = set()
        self._files: dict[str, list[str]] = {}

    def new_rows(self, stacks: Iterable[tuple[Frame, ...]]) -> list[tuple[int, int, str, float]]:
        """Rows of the samples table with the text of lines of the user's own code that were not read before."""
        rows: list[tuple[int, int, str, float]] = []
        for file, line in self._new_lines(stacks):
            if file not in self._files:
                self._files[file] = self._read(file)
            lines = self._files[file]
            text = lines[line - 1].strip()[:_MAX_CHARACTERS] if 0 < line <= len(lines) else ""
            if text:
                rows.append((self._pid, 0, f"{SOURCE_LINE}{file}:{line}:{text}", 1.0))
        return rows

    def _new_lines(self, stacks: Iterable[tuple[Frame, ...]]) -> Iterator[tuple[str, int]]:
        for frames in stacks:
            for file, line, _ in frames:
                library = not file or file.startswith("<") or any(part in file for part in _LIBRARIES)
                if not library and (file, line) not in self._requested and len(self._requested) < _MAX_LINES:
                    self._requested.add((file, line))
                    yield file, line

    def _read(self, file: str) -> list[str]:
        root = f"/proc/{self._pid}"
        within = f"{root}/root{file}" if os.path.isabs(file) else f"{root}/cwd/{file}"  # noqa: PTH117 - no Path yet
        for path in (Path(within), Path(file)):
            try:
                if path.stat().st_size <= _MAX_FILE_BYTES:
                    return path.read_text(errors="replace").splitlines()
            except OSError:
                continue
        return []
