"""Records what a process does: its steps, boundaries, regions, calls and counters.

It runs in the recorded program: only the standard library is imported here, and no Python thread is started. A process
has at most one recorder, made by `start` for whoever asks first: the hooks that `python -m profiler run` brings in, or
a program that imports `profiler.marks`. Both may have loaded a copy of this module, so the recorder is kept in `sys`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import _count_elements  # type: ignore[attr-defined]
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final

from profiler.agent.bootstrap import allow_tracing
from profiler.agent.buffers import InternedTexts, RecordBuffer
from profiler.agent.source_folder import SourceFolder
from profiler.run import tables
from profiler.run.tables import NOT_READ, BoundaryKind, CallKind, ValueKind

if TYPE_CHECKING:
    from profiler.agent.controlled import ControlledProgram

now: Final = time.monotonic_ns
"""The clock of every record: CLOCK_MONOTONIC in ns, the same in all processes of a machine."""

_FLUSH_NS: Final = 250_000_000  # kill -9 loses at most the records of the last quarter of a second
_RUN_CHECK_NS: Final = 5_000_000_000  # checking whether the run goes on takes 0.1 ms
_MAX_CODES: Final = 10_000  # code objects whose lines are remembered: a program may make code without end
_CPU_NS: Final = 10_000_000  # CPU clocks at boundaries are read at most this often: a system call each, 1 to 3 µs
_ALWAYS_READ: Final = 100  # boundaries at which they are read in any case, so that a short run has CPU times
_COUNTER, _GAUGE = int(ValueKind.COUNTER), int(ValueKind.GAUGE)
_SYS_ATTRIBUTE: Final = "_training_profiler_recorder"

_serials: Final = count(1)

Clocks = tuple[int, int, int, int]
"""Now, CPU time of this thread, of this process, and of the threads that are a device: ns."""


class Recorder:
    """Records this process in the run directory `directory`. Made by `start`, not by users."""

    def __init__(self, directory: Path, level: str) -> None:
        self.level = level
        self.detailed = level != "light"
        self.pid = os.getpid()
        self.serial = next(_serials)
        """Unique among the recorders of this process and of those it was forked from."""
        self.folder = SourceFolder(directory, self._describe_process)
        self._buffers = {name: RecordBuffer(self.folder, name) for name in tables.TABLES}
        self._steps = self._buffers["steps"]
        self._values = self._buffers["values"]
        self._boundaries = self._buffers["boundaries"]
        self._calls = self._buffers["calls"]
        self.regions = self._buffers["regions"]
        self.names = InternedTexts(self.folder, tables.NAMES)
        self._site_texts = InternedTexts(self.folder, tables.SITES)
        self._sites: dict[int, tuple[CodeType, dict[int, int]]] = {}
        """Site numbers by id of the code, whose hash takes 1 µs, and instruction. Keeping the code keeps its id."""
        self.facts: dict[str, Any] = {}
        """What the program says of itself."""
        self.hook_facts: dict[str, Any] = {}
        """What hooks found out about it; `facts` take precedence."""
        self.hook_errors: dict[str, str] = {}
        """For each hook why it could not be installed; empty if it was."""
        rank = os.environ.get("RANK", "")
        self.rank = int(rank) if rank.isdecimal() else 0
        self.on_step: list[Callable[[], None]] = []
        self.open_boundary: tuple[BoundaryKind, str] | None = None
        """For the callbacks of on_step: kind and name of the boundary; None if the program marked the step."""
        self.device_cpu: Callable[[], int] = lambda: 0
        self.drains: list[Callable[[], object]] = []
        """Each waits until a device of the program's own is idle, which does not count as a wait of the program."""
        self.prefetch = 0
        """Largest number of batches that a loader of the program prepares ahead."""
        self._control = _connect_control()
        self.thread = _Thread()
        self.index = 0
        self.counters: dict[str, float] = {}
        self.gauges: dict[str, float] = {}
        self._counting = threading.RLock()
        """Held while counters change: threads count at once, and one of them writes what all have counted."""
        self._cpu_read = 0, 0
        """Thread that read its CPU clock last at a boundary, and when."""
        self._always_read = _ALWAYS_READ
        self.boundary = self.clocks()
        self._flushed = self._run_checked = self.boundary[0]
        allow_tracing()

    # ------------------------------------------------------------ the process

    @property
    def directory(self) -> Path:
        """The folder of this process; final with its first record."""
        return self.folder.path

    def add_hook_facts(self, **facts: Any) -> None:
        """Add what a hook found out about this program."""
        self.hook_facts.update(facts)
        self.folder.update_metadata()

    def write_metadata(self) -> None:
        """Write what this process is, and what it says of itself."""
        self.folder.write_metadata()

    def _describe_process(self) -> dict[str, Any]:
        return {
            "schema": tables.SCHEMA,
            "pid": self.pid,
            "ppid": os.getppid(),
            "rank": self.rank,
            "argv": sys.argv,
            "level": self.level,
            "main_tid": threading.main_thread().native_id,
            "hooks": self.hook_errors.copy(),
            "facts": {**self.hook_facts, **self.facts},
        }

    # ------------------------------------------------------------ steps and boundaries

    def clocks(self) -> Clocks:
        """Read all clocks: 1 to 3 µs."""
        return now(), time.thread_time_ns(), time.process_time_ns(), self.device_cpu()

    def open_step(self) -> None:
        """Begin a step now: what was counted until now belongs to no step."""
        for callback in self.on_step:
            callback()
        self.boundary = self.clocks()
        self.take_counters()
        self.gauges = {}

    def step(self, tokens: int, warmup: bool) -> None:
        """End the open step and begin the next."""
        began = now()
        self.open_boundary = None
        for callback in self.on_step:
            callback()  # a device adds its counters and drains its logs: that cost belongs to this step
        tid = self.thread.tid
        if self.detailed:
            self._record_overhead(began, tid)
        before = self.boundary
        after = self.boundary = self.clocks()
        deltas = (late - early for early, late in zip(before[1:], after[1:], strict=True))
        self._steps.write(self.index, before[0], after[0], tokens, *deltas, tid, warmup)
        self._write_values(after[0], self.index)
        self.index += 1
        self.flush_if_due(after[0])
        if self.detailed:
            self._record_overhead(after[0], tid)
        # warm-up steps run freely: behind them the program may begin anew
        if self._control is not None and not warmup and self._control.boundary(self, tables.MARK, tokens):
            self.boundary = self.clocks()  # what other threads counted until the pause stays in this step

    def flush_to_step(self) -> None:
        """Write what this process counted for the step that another process has open; `kill -9` loses none of it.

        Frequent calls are expensive: all buffers are flushed too.
        """
        when = now()
        self._write_values(when, tables.OTHER_PROCESS)
        self._flushed = when
        self.flush()

    def record_boundary(self, kind: BoundaryKind, name: str, *, flag: int = 0) -> None:
        """Record an event at which a step may end; which events do is decided when the run is loaded.

        Nothing is recorded once the program has marked a step itself.

        :param name: of the optimizer or loader with its line: the same for each of its events.
        """
        if self.index:
            return
        at = self.begin_boundary(kind, name)
        if at is not None:
            self.end_boundary(kind, name, at, flag)

    def begin_boundary(self, kind: BoundaryKind, name: str) -> Clocks | None:
        """Take the time of a boundary, and assign to the step before it what was counted until now.

        CPU clocks that were read within the last 10 ms are not read again, except at the first boundaries: the record
        then has NOT_READ.

        :returns: the argument `at` of `end_boundary`; None if an error occurred, which is reported.
        """
        self.open_boundary = kind, name
        try:
            for callback in self.on_step:
                callback()
            when, tid = now(), self.thread.tid
            last_tid, last = self._cpu_read
            if tid != last_tid or when - last > _CPU_NS or self._always_read:
                self._cpu_read = tid, when
                self._always_read = max(0, self._always_read - 1)
                at = when, time.thread_time_ns(), time.process_time_ns(), self.device_cpu()
            else:
                at = when, NOT_READ, NOT_READ, NOT_READ
            if self.counters or self.gauges:
                self._write_values(when, -1)
        except Exception as error:  # noqa: BLE001 - called by a hook amid the program's own code; it reports
            self.folder.fail(error)
            return None
        return at

    def end_boundary(self, kind: BoundaryKind, name: str, at: Clocks, flag: int = 0) -> None:
        """Record the boundary that `begin_boundary` began; its `flag` may be known only now."""
        try:
            boundaries = self._boundaries
            boundaries.append(boundaries.pack(*at, self.thread.tid, self.names[name], kind, flag))
            if at[0] - self._flushed > _FLUSH_NS:
                self.flush_if_due(at[0])
            if self._control is not None:
                self._control.boundary(self, f"{int(kind)} {name}")
        except Exception as error:  # noqa: BLE001 - as above
            self.folder.fail(error)

    # ------------------------------------------------------------ counters

    def count(self, name: str, amount: float = 1.0) -> None:
        """Add to a counter of the current step."""
        total = float(amount)
        with self._counting:  # `increment` takes no lock: the loop repeats if it counted meanwhile
            counters = self.counters
            while counters.setdefault(name, added := total + counters.pop(name, 0.0)) is not added:
                total = added

    def increment(self, names: tuple[str, ...]) -> None:
        """Add 1 to each, for the most frequent counters: in C, which holds the GIL throughout and needs no lock."""
        _count_elements(self.counters, names)

    def take_counters(self) -> dict[str, float]:
        """Return what has been counted, and reset all counters."""
        with self._counting:
            taken, self.counters = self.counters, {}
        return taken

    def _write_values(self, when: int, step: int) -> None:
        values, names = self._values, self.names
        if self.counters:
            with self._counting:
                counters, self.counters = self.counters, {}
            for name, value in counters.items():
                values.append(values.pack(when, step, value, names[name], _COUNTER))
        if self.gauges:
            gauges, self.gauges = self.gauges, {}
            for name, value in gauges.items():
                values.append(values.pack(when, step, value, names[name], _GAUGE))

    # ------------------------------------------------------------ calls and regions

    def call(self, kind: CallKind, name: str, begin: int, *, blocked: int = 0, size: int = 0, site: int = -1) -> None:
        """Record a call toward a device that ends now; for the last `blocked` ns of it the host waited."""
        end = now()
        calls = self._calls
        calls.append(calls.pack(begin, end, blocked, size, 0, self.thread.tid, kind, self.names[name], site, 0))
        if end - self._flushed > _FLUSH_NS:
            self.flush_if_due(end)

    def instant(self, name: str, *, size: int = 0, site: int = -1) -> None:
        """Record a call of no length: it tells that something happens at a line, and takes no part of a step."""
        when = now()
        calls = self._calls
        calls.append(calls.pack(when, when, 0, size, 0, self.thread.tid, CallKind.OTHER, self.names[name], site, 0))
        if when - self._flushed > _FLUSH_NS:
            self.flush_if_due(when)

    def region(self, name: str, begin: int, depth: int) -> None:
        """Record a region that ends now and began at the thread's depth `depth`.

        With `thread.depth = depth + 1` before it this does what `Region` does, in one call instead of three.
        """
        end = now()
        thread, regions = self.thread, self.regions
        thread.depth = depth
        regions.append(regions.pack(begin, end, thread.tid, self.names[name], depth))
        if end - self._flushed > _FLUSH_NS:
            self.flush_if_due(end)

    def _record_overhead(self, began: int, tid: int) -> None:
        """Recording takes time of the steps that it records: the breakdown shows it by name."""
        self.regions.write(began, now(), tid, self.names["recording"], self.thread.depth)

    def site(self, frame: FrameType) -> int:
        """Number of the line that `frame` is at."""
        code, instruction = frame.f_code, frame.f_lasti  # f_lineno decodes a table each time, so results are cached
        cached = self._sites.get(id(code))
        if cached is None:
            if len(self._sites) >= _MAX_CODES:
                self._sites.clear()
            cached = self._sites[id(code)] = code, {}
        number = cached[1].get(instruction)
        if number is None:
            line = frame.f_lineno
            number = cached[1][instruction] = self._site_texts.intern(
                (code.co_filename, line), lambda: {"file": code.co_filename, "line": line, "function": code.co_qualname}
            )
        return number

    # ------------------------------------------------------------ writing

    def append_records(self, table: str, records: bytes | bytearray | memoryview) -> None:
        """Append packed records of `table`, in the layout of `profiler.run.tables`."""
        self._buffers[table].append_records(records)

    def flush_if_due(self, when: int) -> None:
        """Flush if the last flush was long ago, which bounds what a kill can lose."""
        if when - self._flushed > _FLUSH_NS:
            self._flushed = when
            if when - self._run_checked > _RUN_CHECK_NS:
                self._run_checked = when
                self.folder.stop_if_run_ended()
            self.flush()

    def flush(self) -> None:
        for buffer in self._buffers.values():
            buffer.flush()

    def close(self) -> None:
        """Close the files; nothing more is written."""
        for buffer in self._buffers.values():
            buffer.close()


def _connect_control() -> ControlledProgram | None:
    """Connect to the control socket, if the speed test set one."""
    path = os.environ.get(tables.ENV_CONTROL)
    if not path:
        return None
    from profiler.agent.controlled import ControlledProgram

    return ControlledProgram(path)


class _Thread(threading.local):
    """What the open regions of a thread need: its id, a system call to get, and how deep they nest."""

    def __init__(self) -> None:
        self.tid = threading.get_native_id()
        self.depth = 0


class Region:
    """One open region: a context manager."""

    __slots__ = ("_begin", "_depth", "_name", "_recorder")

    def __init__(self, recorder: Recorder, name: str) -> None:
        self._recorder = recorder
        self._name = name

    def __enter__(self) -> None:
        thread = self._recorder.thread
        self._depth = thread.depth
        thread.depth = self._depth + 1
        self._begin = now()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorder.region(self._name, self._begin, self._depth)


def start(directory: Path | None = None, level: str = "") -> Recorder | None:
    """Return the recorder of this process, made if the environment or the caller asks for one; None otherwise.

    A forked child gets one of its own.
    """
    existing: Recorder | None = sys.__dict__.get(_SYS_ATTRIBUTE)
    if existing is not None and existing.pid == os.getpid():
        return existing
    run = os.environ.get(tables.ENV_RUN)
    if directory is None and not run:
        return None
    if existing is not None:
        existing.close()
    recorder = Recorder(directory or Path(run or ""), level or os.environ.get(tables.ENV_LEVEL, "light"))
    setattr(sys, _SYS_ATTRIBUTE, recorder)
    return recorder


def stop() -> None:
    """Flush the recorder of this process, and forget it."""
    recorder: Recorder | None = sys.__dict__.pop(_SYS_ATTRIBUTE, None)
    if recorder is not None:
        recorder.flush()
        recorder.close()
