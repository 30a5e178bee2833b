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
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

from profiler.agent.bootstrap import allow_tracing
from profiler.agent.clocks import ThreadClocks, ThreadState, now
from profiler.agent.folder import InternedTexts, RecordBuffer, Sites, SourceFolder
from profiler.run import tables
from profiler.run.tables import NOT_READ, BoundaryKind, CallKind, StageKind, ValueKind

if TYPE_CHECKING:
    from profiler.agent.control_client import ControlClient
    from profiler.agent.results import ResultWriter

_ANNOUNCED: Final = 2  # records from which `profiler.record.collectors.stacks` knows that the program steps
_FLUSH_NS: Final = 250_000_000  # kill -9 loses at most the records of the last quarter of a second
_RELEASE_CHECK_NS: Final = 1_000_000_000  # looking for a file takes 3 µs
_RUN_CHECK_NS: Final = 5_000_000_000  # checking whether the run goes on takes 0.1 ms
_MAX_TALLIES: Final = 1000
"""Lines whose reads are tallied: each takes 0.1 µs at every boundary, and a program may generate code forever."""
_MAX_ACCUMULATED: Final = 64
"""Number of backward passes after an optimizer's step from which they may be steps themselves: gradients are rarely
accumulated over more of them."""
_COUNTER, _GAUGE, _READ = int(ValueKind.COUNTER), int(ValueKind.GAUGE), int(CallKind.MIGHT_SYNC)
_SYS_ATTRIBUTE: Final = "_training_profiler_recorder"

_serials: Final = count(1)

Clocks = tuple[int, int, int, int]
"""Now, CPU time of this thread, of this process, and of the threads that are a device: ns."""


Tally = list[int]
"""Reads of one line since the last boundary: their number, their time (ns), number of their name, site."""


class Recorder:
    """Records this process in the run directory `directory`. Made by `start`, not by users."""

    open_boundary: tuple[BoundaryKind, str] | None = None
    """For the callbacks of on_step: kind and name of the boundary; None if the program marked the step."""
    is_warmup = False
    """For the callbacks of on_step: whether the program marked the step that ended last as a warm-up."""
    prefetch = 0
    """Largest number of batches that a loader of the program prepares ahead."""
    open_windows = 0
    """Sessions of torch's profilers that hooks have open: the recording does not end before they do."""
    _backwards_at_step: int | None = None
    """Backward passes until the last step of an optimizer; None: no optimizer has stepped."""
    _has_unwritten_facts = False
    _results: ResultWriter | None = None

    def __init__(self, directory: Path, level: str) -> None:
        self.level = level
        self.detailed = level != "light"
        self.pid = os.getpid()
        self.serial = next(_serials)
        """Unique among the recorders of this process and of those it was forked from."""
        rank = os.environ.get("RANK", "")
        self.rank = int(rank) if rank.isdecimal() else 0
        self.facts: dict[str, Any] = {}
        """Facts that the program states about itself (`marks.describe`). They take precedence over those of hooks."""
        self.hook_facts: dict[str, Any] = {}
        self.hook_errors: dict[str, str] = {}
        """For each hook, the reason why it could not be installed, or an empty text."""
        self.on_step: list[Callable[[], None]] = []
        self.on_mode: list[Callable[[], None]] = []
        """Called where another stage of the program begins or ends: an evaluation, a checkpoint."""
        self.release: Callable[[], object] = lambda: None
        """Ends the recording of this process."""
        self.on_release: list[Callable[[], object]] = []
        """What must not stay when the recording ends before the process."""
        self.device_cpu: Callable[[], int] = lambda: 0
        self.drains: list[Callable[[], object]] = []
        """Functions that wait until a device that the program itself implements is idle. This does not count as a wait
        of the program."""
        self.index = 0
        self.backwards = 0
        """Number of backward passes so far."""
        self._open_tables(directory)
        self._begin_counting()
        self._control = _control_client()
        self._unannounced = _ANNOUNCED
        self.boundary = self.clocks()
        self._flushed = self._run_checked = self._release_checked = self._tallied = self.boundary[0]
        allow_tracing()

    def _open_tables(self, directory: Path) -> None:
        self.folder = SourceFolder(directory, self._describe_process)
        self._buffers = buffers = {name: RecordBuffer(self.folder, name) for name in tables.TABLES}
        self._steps, self._boundaries, self._values = buffers["steps"], buffers["boundaries"], buffers["values"]
        self._calls, self._library_calls = buffers["calls"], buffers["library_calls"]
        self._stages, self.regions = buffers["stages"], buffers["regions"]
        self.names = InternedTexts(self.folder, tables.NAMES)
        sites = Sites(self.folder)
        self.site, self.site_of = sites.of_frame, sites.of_line
        self.thread = ThreadState()
        clocks = ThreadClocks(self.thread, buffers["thread_clocks"])
        self._is_reading_due, self._record_clocks, self.begin_clocked = clocks.is_due, clocks.record, clocks.begin

    def _begin_counting(self) -> None:
        self.counters: dict[str, float] = {}
        self.gauges: dict[str, float] = {}
        self.lines: dict[Any, Any] = {}
        """Line of code -> its tally, or the same dictionary of its callers. The key is `id(code)` plus the instruction,
        an address within the code object, and so of no other one while `codes` keeps it alive."""
        self.codes: dict[int, CodeType] = {}
        self.no_tally: Tally = []
        """Stands in `lines` for a line that is not counted."""
        self._tallies: list[Tally] = []
        self._counting = threading.RLock()
        """Held while counters change: several threads count concurrently, and one of them writes the counts of all."""

    # ------------------------------------------------------------ the process

    @property
    def directory(self) -> Path:
        """The folder of this process. It can change until the first record is written."""
        return self.folder.path

    def add_hook_facts(self, **facts: Any) -> None:
        """Add what a hook found out about this program."""
        self.hook_facts.update(facts)
        self.folder.update_metadata()

    def add_frequent_hook_facts(self, **facts: Any) -> None:
        """Add what a hook finds out many times: the next flush writes it, because writing takes half a millisecond."""
        self.hook_facts.update(facts)
        self._has_unwritten_facts = True

    def write_metadata(self) -> None:
        """Write what this process is, and the facts that it states about itself."""
        self.folder.write_metadata()

    def _describe_process(self) -> dict[str, Any]:
        return {
            "schema": tables.SCHEMA,
            "pid": self.pid,
            "ppid": os.getppid(),
            "rank": self.rank,
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
        for tally in self._tallies:
            tally[:2] = 0, 0
        with self._counting:
            self.counters, self.gauges = {}, {}

    def step(self, tokens: int, warmup: bool) -> None:
        """End the open step and begin the next."""
        began = now()
        self.open_boundary, self.is_warmup = None, warmup
        for callback in self.on_step:
            callback()  # a device adds its counters and drains its logs: that cost belongs to this step
        if self.detailed:
            self.record_overhead(began)
        before = self.boundary
        after = self.boundary = self.clocks()
        deltas = (late - early for early, late in zip(before[1:], after[1:], strict=True))
        self._steps.write(self.index, before[0], after[0], tokens, *deltas, self.thread.tid, warmup)
        if self._is_reading_due(after[0]):
            self._record_clocks(after[0], after[1])
        self._write_values(after[0], self.index)
        self.index += 1
        self._announce()
        self.flush_if_due(after[0])
        if self.detailed:
            self.record_overhead(after[0])
        # `check` does not stop at warm-up steps, after which the program may restart its training
        if self._control is not None and not warmup and self._control.boundary(self, tables.MARK, tokens):
            # the next step begins after the pause; what other threads counted before it stays in this step
            self.boundary = self.clocks()

    def flush_to_step(self) -> None:
        """Write what this process counted for the step that another process has open; `kill -9` loses none of it.

        Frequent calls are expensive: all buffers are flushed too.
        """
        when = now()
        self._write_values(when, tables.STEP_OF_ANOTHER_PROCESS)
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

    def count_backward(self) -> bool:
        """Count a backward pass that has ended, and return whether it may end a step."""
        self.backwards += 1
        since = self._backwards_at_step
        return not self.index and (since is None or self.backwards - since > _MAX_ACCUMULATED)

    def change_mode(self, kind: StageKind, name: str, object_id: int) -> None:
        """Record that a module has changed between training and evaluation mode."""
        when = self.split()
        self.stage(kind, name, when, when, object_id)

    def split(self) -> int:
        """Record what was counted by line until now, so that what follows is counted apart; returns the time."""
        try:
            for callback in self.on_mode:
                callback()
            if self.detailed and self._tallies:
                self.write_tallies(now())
        except Exception as error:  # noqa: BLE001 - same reason as in begin_boundary
            self.folder.fail(error)
        return now()

    def stage(self, kind: StageKind, name: str, begin: int, end: int, object_id: int = 0) -> None:
        """Record what shows in which stage the program is: see `StageKind`."""
        stages = self._stages
        stages.append(stages.pack(begin, end, object_id, self.thread.tid, self.names[name], kind))
        if end - self._flushed > _FLUSH_NS:
            self.flush_if_due(end)

    def begin_boundary(self, kind: BoundaryKind, name: str) -> Clocks | None:
        """Take the time of a boundary, and assign to the step before it what was counted until now.

        CPU clocks that were read within the last 10 ms are not read again, except at the first boundaries: the record
        then has NOT_READ.

        :returns: the argument `at` of `end_boundary`; None if an error occurred, which is reported.
        """
        self.open_boundary = kind, name
        if kind is BoundaryKind.OPTIMIZER:
            self._backwards_at_step = self.backwards
        try:
            for callback in self.on_step:
                callback()
            when = now()
            if self._is_reading_due(when):
                at = when, time.thread_time_ns(), time.process_time_ns(), self.device_cpu()
                self._record_clocks(when, at[1])
            else:
                at = when, NOT_READ, NOT_READ, NOT_READ
            if self.counters or self.gauges or self._tallies:
                self._write_values(when, tables.NO_MARKED_STEP)
        except Exception as error:  # noqa: BLE001 - it must not fail the program whose code it runs in
            self.folder.fail(error)
            return None
        return at

    def end_boundary(self, kind: BoundaryKind, name: str, at: Clocks, flag: int = 0) -> None:
        """Record the boundary that `begin_boundary` began; its `flag` may be known only now."""
        try:
            boundaries = self._boundaries
            boundaries.append(boundaries.pack(*at, self.thread.tid, self.names[name], kind, flag))
            if self._unannounced:
                self._announce()
            if at[0] - self._flushed > _FLUSH_NS:
                self.flush_if_due(at[0])
            if self._control is not None:
                self._control.boundary(self, f"{int(kind)} {name}")
        except Exception as error:  # noqa: BLE001 - same reason as in begin_boundary
            self.folder.fail(error)

    def _announce(self) -> None:
        """Let the first steps or boundaries be written at once: stacks are sampled more often from then on."""
        if self._unannounced:
            self._unannounced -= 1
            self._flushed = 0

    # ------------------------------------------------------------ counters

    def count(self, name: str, amount: float = 1.0) -> None:
        """Add to a counter of the current step."""
        total = float(amount)
        with self._counting:  # the loop repeats if the handler of a signal counted meanwhile
            counters = self.counters
            while counters.setdefault(name, added := total + counters.pop(name, 0.0)) is not added:
                total = added

    def tally(self, name: str, site: int) -> Tally:
        """Return a new tally, whose first two numbers callers increase: that is the fastest way of recording a call."""
        if len(self._tallies) >= _MAX_TALLIES:
            self.forget_lines()
        tally = [0, 0, self.names[name], site]
        self._tallies.append(tally)
        return tally

    def forget_lines(self) -> None:
        """Record all tallies, and forget which lines have which."""
        self.write_tallies(now())
        self.codes = {}  # first: what enters `lines` from now on must be kept alive
        self.lines, self._tallies = {}, []

    def write_tallies(self, when: int) -> None:
        """Record what was tallied in the step that ends at `when`, as one call for each line."""
        for tally in self._tallies:
            number, length, name, site = tally
            if number:
                tally[0] -= number  # one instruction: another thread may add meanwhile
                tally[1] -= length
                self.count(tables.MIGHT_SYNC, number)
                if self.detailed:
                    begin, tid = max(when - 1 - length, self._tallied), self.thread.tid
                    calls = self._calls
                    calls.append(calls.pack(begin, when - 1, 0, number, 0, tid, _READ, name, site, 0))
        self._tallied = when

    def _write_values(self, when: int, step: int) -> None:
        if self._tallies:
            self.write_tallies(when)
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

    def result(self, name: str, value: Any, *, rtol: float, atol: float, margins: Any) -> None:
        """Store a result that the program states."""
        if self._results is None:
            from profiler.agent.results import ResultWriter  # few programs state any

            self._results = ResultWriter(self.folder)
        self._results.write(name, value, rtol, atol, margins)

    # ------------------------------------------------------------ calls and regions

    def call(
        self, kind: CallKind, name: str, begin: int, *, blocked: int = 0, size: int = 0, site: int = -1, frame: int = -1
    ) -> None:
        """Record a device call that ends now. The host was blocked for its last `blocked` ns.

        :param frame: the line of a library which makes the call, where `site` calls that; -1: none, or unknown.
        """
        end, calls, tid = now(), self._calls, self.thread.tid
        calls.append(calls.pack(begin, end, blocked, size, 0, tid, kind, self.names[name], site, 0))
        if frame >= 0:
            self._library_calls.append(self._library_calls.pack(begin, tid, frame))
        if end - self._flushed > _FLUSH_NS:
            self.flush_if_due(end)

    def instant(self, name: str, *, size: int = 0, site: int = -1) -> None:
        """Record an event without duration at a source line. It takes no time from any category."""
        when = now()
        calls = self._calls
        calls.append(calls.pack(when, when, 0, size, 0, self.thread.tid, CallKind.OTHER, self.names[name], site, 0))
        if when - self._flushed > _FLUSH_NS:
            self.flush_if_due(when)

    def region(self, name: str, begin: int, depth: int) -> None:
        """Record a region that ends now and began at the thread's depth `depth`.

        A caller that sets `thread.depth = depth + 1` when the region begins gets the effect of `Region` with one call
        instead of three.
        """
        end = now()
        thread, regions = self.thread, self.regions
        thread.depth = depth
        if depth == thread.clocked_depth:
            thread.clocked_depth = -1
            self._record_clocks(end, tables.NOT_READ)
        regions.append(regions.pack(begin, end, thread.tid, self.names[name], depth))
        if end - self._flushed > _FLUSH_NS:
            self.flush_if_due(end)

    def record_overhead(self, began: int) -> None:
        """Record the recorder's own time until now as the region `recording`, so that the breakdown shows it."""
        self.regions.write(began, now(), self.thread.tid, self.names["recording"], self.thread.depth)

    # ------------------------------------------------------------ writing

    def append_records(self, table: str, records: bytes | bytearray | memoryview) -> None:
        """Append packed records of `table`, in the layout of `profiler.run.tables`."""
        self._buffers[table].append_records(records)

    def flush_if_due(self, when: int) -> None:
        """Flush if the last flush was more than _FLUSH_NS ago, which limits what a kill can lose."""
        if when - self._flushed > _FLUSH_NS:
            self._flushed = when
            if when - self._run_checked > _RUN_CHECK_NS:
                self._run_checked = when
                self.folder.stop_if_run_ended()
            self.flush()
            if when - self._release_checked > _RELEASE_CHECK_NS:
                self._release_checked = when
                if not self.folder.failed and not self.open_windows and self.folder.is_released():
                    self.folder.failed = "the run has ended"
                    self.release()

    def flush(self) -> None:
        if self._has_unwritten_facts:
            self._has_unwritten_facts = False
            self.folder.update_metadata()
        for buffer in self._buffers.values():
            buffer.flush()

    def close(self) -> None:
        """Close the files; nothing more is written."""
        for buffer in self._buffers.values():
            buffer.close()


def _control_client() -> ControlClient | None:
    path = os.environ.get(tables.ENV_CONTROL)
    if not path:
        return None
    from profiler.agent.control_client import ControlClient  # the speed test controls this program

    return ControlClient(path)


def start(directory: Path | None = None, level: str = "") -> Recorder | None:
    """Return the recorder of this process, creating it if the environment or the caller requests recording; otherwise
    None.

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
    """Flush and close the recorder of this process, and remove it."""
    recorder: Recorder | None = sys.__dict__.pop(_SYS_ATTRIBUTE, None)
    if recorder is not None:
        recorder.flush()
        recorder.close()
