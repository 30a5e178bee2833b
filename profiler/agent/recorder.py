"""Writes what a process says of itself: its steps, regions, calls and counters, in a folder of the run directory.

It runs in the recorded program: only the standard library is imported here, and no Python thread is started. Made by
`start`, at most once a process, whoever asks first: the hooks that `python -m profiler run` brings in, or a program
that imports `profiler.marks`. Both may hold a copy of this module of their own, so the recorder is kept in `sys`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import _count_elements, deque  # type: ignore[attr-defined]
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final

from profiler.agent.appended import Appended
from profiler.agent.bootstrap import allow_tracing, warn
from profiler.run import tables
from profiler.run.tables import NOT_READ, BoundaryKind, CallKind, ValueKind

if TYPE_CHECKING:
    from profiler.agent.controlled import ControlledProgram

now: Final = time.monotonic_ns
"""The clock of every record: CLOCK_MONOTONIC in ns, the same in all processes of a machine."""

_FLUSH_BYTES: Final = 1 << 16  # a write() this large costs about as much as a small one
_FLUSH_NS: Final = 250_000_000  # what kill -9 can lose: steps of the last quarter of a second
_LOOK_NS: Final = 5_000_000_000  # a look whether the run goes on takes 0.1 ms
_MOST_TEXTS: Final = 20_000  # that are remembered: a program may make up names without end
_MOST_CODES: Final = 10_000  # of which lines are known: a program may make code as it goes
_CPU_NS: Final = 10_000_000  # CPU clocks are read so seldom where steps are found: each is a system call, 1 to 3 us
_EARLY: Final = 100  # boundaries at which they are: a short run has its CPU times
_COUNTER, _GAUGE = int(ValueKind.COUNTER), int(ValueKind.GAUGE)
_SLOT: Final = "_training_profiler_recorder"  # in sys: one recorder a process, however many copies of us it has loaded

_serials: Final = count(1)

Clocks = tuple[int, int, int, int]
"""Now, CPU of this thread, CPU of this process, CPU of the threads that are a device: ns."""


class _Stream:
    """One append-only table, buffered; the file appears with its first flush. Any thread may append.

    Records wait in a deque, whose append and popleft need no lock: a write gives up the GIL, and other threads go on.
    The lock may be taken again by who has it: a handler of a signal runs in the middle of anything.
    """

    def __init__(self, owner: Recorder, table: str) -> None:
        packer = tables.packer(table)
        self.pack = packer.pack
        self._most = _FLUSH_BYTES // packer.size
        self._waiting: deque[bytes] = deque()
        self.append = self._waiting.append
        """With `pack` what `write` does, without a call, for what is written most: whoever does it calls
        `Recorder.flush_if_due` often enough."""
        self._owner = owner
        self._file = Appended(f"{table}.bin")
        self._writing = threading.RLock()

    def write(self, *fields: float) -> None:
        self.append(self.pack(*fields))
        if len(self._waiting) >= self._most:
            self.flush()

    def raw(self, records: bytes | bytearray | memoryview) -> None:
        """Append whole records; many at once go to the file from where they are."""
        if len(records) < _FLUSH_BYTES:
            self._waiting.append(bytes(records))
        else:
            self.flush()
            with self._writing:
                self._put(memoryview(records))

    def flush(self) -> None:
        with self._writing:
            waiting, data = self._waiting, bytearray()
            while waiting:
                data += waiting.popleft()
            self._put(memoryview(data))

    def close(self) -> None:
        self._file.close()

    def _put(self, data: memoryview) -> None:
        if not data or not self._owner.is_ours():
            return
        self._owner.make_folder()
        if self._owner.failed:
            return
        try:
            self._file.append(self._owner.directory, data)
        except OSError as error:
            self._owner.fail(error)


class _Texts(dict[Any, int]):
    """Interned strings: an id each, written as JSON lines the first time they are seen.

    texts[key] is texts(key), without a call when the key is known.
    Only so many are remembered; of those that are met again afterwards the file has one more line, with another id.
    """

    def __init__(self, owner: Recorder, file_name: str) -> None:
        self._numbers = count()
        self._owner = owner
        self._file_name = file_name
        self._adding = threading.RLock()

    def __missing__(self, key: Any) -> int:
        return self(key)

    def __call__(self, key: Any, record: Callable[[], dict[str, Any]] | None = None) -> int:
        known = self.get(key)
        if known is not None:
            return known
        if not self._owner.is_ours():  # a child of a fork: the lock may be held by a thread that it does not have
            return -1
        with self._adding:
            known = self.get(key)
            if known is not None:
                return known
            if len(self) >= _MOST_TEXTS:
                self.clear()
            number = next(self._numbers)
            self._write({"id": number, **(record() if record else {"text": key})})
            self[key] = number  # last: another thread must not use an id that is not written yet
        return number

    def _write(self, line: dict[str, Any]) -> None:
        self._owner.make_folder()
        if not self._owner.failed:
            try:
                with open(self._owner.directory / self._file_name, "a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
            except OSError as error:
                self._owner.fail(error)


class Recorder:
    """Writes this process's records below `directory`/source-PID. Made by `_start`, not by users."""

    def __init__(self, directory: Path, level: str) -> None:
        self.level = level
        self.detailed = level != "light"
        self.pid = os.getpid()
        self.serial = next(_serials)
        """Another for each recorder that this process, or one that it was forked from, has had."""
        self.directory = directory / tables.source_name(self.pid)
        """Known for good with the first record."""
        self.failed = ""
        self._made = False
        self._making = threading.RLock()
        self._counting = threading.RLock()
        """Held while counters change: threads count at once, and one of them writes what all have counted."""
        self._telling = threading.RLock()
        self._tellings = count()
        self._streams = {name: _Stream(self, name) for name in tables.TABLES}
        self._steps = self._streams["steps"]
        self._values = self._streams["values"]
        self._boundaries = self._streams["boundaries"]
        self._calls = self._streams["calls"]
        self.regions = self._streams["regions"]
        self.name = _Texts(self, tables.NAMES)
        self._site = _Texts(self, tables.SITES)
        self._sites: dict[int, tuple[CodeType, dict[int, int]]] = {}
        """By the id of code, whose hash takes 1 µs: the code, which is kept so that ids hold, and its instructions."""
        self.facts: dict[str, Any] = {}
        """What the program said of itself."""
        self.hook_facts: dict[str, Any] = {}
        """What hooks know of it: where it says something else, its own word counts."""
        self.hook_errors: dict[str, str] = {}
        """Of each hook: empty when it came in, or why it did not."""
        rank = os.environ.get("RANK", "")
        self.rank = int(rank) if rank.isdecimal() else 0
        self.on_step: list[Callable[[], None]] = []
        self.open_boundary: tuple[BoundaryKind, str] | None = None
        """For the callbacks of on_step: kind and name of the boundary that was found; None: the program marked it."""
        self.device_cpu: Callable[[], int] = lambda: 0
        self.drains: list[Callable[[], object]] = []
        """Each waits until a device of the program's own is idle, and counts as no wait of the program's."""
        self.prefetch = 0
        """Batches that the program's loaders make ahead, at most."""
        self._control = _control()
        self.thread = _Thread()
        self.index = 0
        self.counters: dict[str, float] = {}
        self.gauges: dict[str, float] = {}
        self._read = 0, 0
        """Thread whose CPU clock was read last at a boundary that a hook saw, and when."""
        self._early = _EARLY
        self.boundary = self.clocks()
        self._flushed = self._looked = self.boundary[0]
        allow_tracing()

    def is_ours(self) -> bool:
        """Whether it is this process's: what a fork finds is its parent's, and it may not write to it."""
        return self.pid == os.getpid()

    def make_folder(self) -> None:
        """With its first record a process gets its folder: many record nothing (a shell tool, a fork)."""
        if not self._made and not self.failed and self.is_ours():
            with self._making:
                self._make()

    def _make(self) -> None:
        if self._made or self.failed:  # by another thread, meanwhile
            return
        try:
            self._make_own()
        except OSError as error:
            self.fail(error)
            return
        self._replace_meta()

    def _make_own(self) -> None:
        """Another process had our pid before, or this one another program: its records are not ours."""
        run = self.directory.parent
        for number in count(1):
            folder = run / tables.source_name(self.pid, number)
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            if self._made:  # by a signal's handler, in the middle of this
                folder.rmdir()
            else:
                self.directory, self._made = folder, True  # now that it is there, other threads may write into it
            return

    def add_hook_facts(self, **facts: Any) -> None:
        """A hook found out something about this program."""
        self.hook_facts.update(facts)
        if self._made:
            self.write_meta()

    def fail(self, error: Exception) -> None:
        """Stop recording and say so once; the program that we record goes on."""
        if not self.failed:
            self.failed = str(error) or type(error).__name__
            if tables.first_to_stop(self.directory):
                warn(f"recording stopped: {getattr(error, 'strerror', None) or self.failed}; the program goes on")

    def clocks(self) -> Clocks:
        """Read at a boundary; 1 to 3 µs."""
        return now(), time.thread_time_ns(), time.process_time_ns(), self.device_cpu()

    def open_step(self) -> None:
        for callback in self.on_step:
            callback()  # what a device counted until now belongs to no step
        self.boundary = self.clocks()
        self.take_counters()
        self.gauges = {}

    def step(self, tokens: int, warmup: bool) -> None:
        began = now()
        self.open_boundary = None
        for callback in self.on_step:
            callback()  # a device adds its counters and drains its logs: that cost belongs to this step
        tid = self.thread.tid
        if self.detailed:
            self._own_time(began, tid)
        before = self.boundary
        after = self.boundary = self.clocks()
        deltas = (late - early for early, late in zip(before[1:], after[1:], strict=True))
        self._steps.write(self.index, before[0], after[0], tokens, *deltas, tid, warmup)
        self._write_values(after[0], self.index)
        self.index += 1
        self.flush_if_due(after[0])
        if self.detailed:
            self._own_time(after[0], tid)
        # what the program calls warm-up runs freely: behind it, it may begin anew
        if self._control is not None and not warmup and self._control.boundary(self, tables.MARK, tokens):
            self.boundary = self.clocks()  # what other threads counted until the pause stays this step's

    def flush_to_step(self) -> None:
        """Write what this process counted, for the step that another one has open; whoever kills it loses none of it.

        To call it often costs: what waits is written too.
        """
        when = now()
        self._write_values(when, tables.OTHER_PROCESS)
        self._flushed = when
        self.flush()

    def record_boundary(self, kind: BoundaryKind, name: str, *, flag: int = 0) -> None:
        """A moment at which a step may end, seen by a hook; which of them do is chosen when the run is loaded.

        Nothing once the program has marked a step itself: then its own word counts.

        :param name: what was seen, the same at each of its moments: the optimizer, the loader, with its line.
        """
        if self.index:
            return
        at = self.begin_boundary(kind, name)
        if at is not None:
            self.end_boundary(kind, name, at, flag)

    def begin_boundary(self, kind: BoundaryKind, name: str) -> Clocks | None:
        """The first half of `record_boundary`: what was counted until now belongs to the step that may end.

        But for the first ones, CPU clocks that were read within the last 10 ms are not read again: the boundary says
        -1 (NOT_READ).

        :returns: what `end_boundary` is to be called with; None: it went wrong, which is reported.
        """
        self.open_boundary = kind, name
        try:
            for callback in self.on_step:
                callback()
            when, tid = now(), self.thread.tid
            last_tid, last = self._read
            if tid != last_tid or when - last > _CPU_NS or self._early:
                self._read = tid, when
                self._early = max(0, self._early - 1)
                at = when, time.thread_time_ns(), time.process_time_ns(), self.device_cpu()
            else:
                at = when, NOT_READ, NOT_READ, NOT_READ
            if self.counters or self.gauges:
                self._write_values(when, -1)
        except Exception as error:  # noqa: BLE001 - a hook's call, in the middle of the program's own; it reports
            self.fail(error)
            return None
        return at

    def end_boundary(self, kind: BoundaryKind, name: str, at: Clocks, flag: int = 0) -> None:
        """The second half: what `flag` says may be known later than the moment."""
        try:
            boundaries = self._boundaries
            boundaries.append(boundaries.pack(*at, self.thread.tid, self.name[name], kind, flag))
            if at[0] - self._flushed > _FLUSH_NS:
                self.flush_if_due(at[0])
            if self._control is not None:
                self._control.boundary(self, f"{int(kind)} {name}")
        except Exception as error:  # noqa: BLE001 - as above
            self.fail(error)

    def count(self, name: str, amount: float = 1.0) -> None:
        """Add to a counter of the current step."""
        total = float(amount)
        with self._counting:  # against take_counters; against increment one look more
            counters = self.counters
            while counters.setdefault(name, added := total + counters.pop(name, 0.0)) is not added:
                total = added

    def increment(self, names: tuple[str, ...]) -> None:
        """Add 1 to each: in C, which holds the GIL throughout, so that it needs no lock. For what is counted most."""
        _count_elements(self.counters, names)

    def take_counters(self) -> dict[str, float]:
        """What has been counted until now; it begins anew."""
        with self._counting:
            taken, self.counters = self.counters, {}
        return taken

    def _write_values(self, when: int, step: int) -> None:
        values, names = self._values, self.name
        if self.counters:
            with self._counting:
                counters, self.counters = self.counters, {}
            for name, value in counters.items():
                values.append(values.pack(when, step, value, names[name], _COUNTER))
        if self.gauges:
            gauges, self.gauges = self.gauges, {}
            for name, value in gauges.items():
                values.append(values.pack(when, step, value, names[name], _GAUGE))

    def flush_if_due(self, when: int) -> None:
        """Write what waits when the last time was long ago: what a kill can lose is bounded."""
        if when - self._flushed > _FLUSH_NS:
            self._flushed = when
            if when - self._looked > _LOOK_NS:
                self._looked = when
                self._stop_if_over()
            self.flush()

    def _stop_if_over(self) -> None:
        """A process that outlives its run writes no more; one whose recorder was killed goes on writing."""
        pid = os.environ.get(tables.ENV_RECORDER, "")
        if not pid.isdecimal() or Path(f"/proc/{pid}").exists():
            return
        try:
            manifest = json.loads((self.directory.parent / tables.MANIFEST).read_bytes())
            over = manifest["state"] != "running"
        except (OSError, ValueError, KeyError, TypeError):
            return
        if over:
            self.failed = self.failed or "the run has ended"

    def call(self, kind: CallKind, name: str, begin: int, *, blocked: int = 0, size: int = 0, site: int = -1) -> None:
        """A call toward a device that began at `begin` and ends now; `blocked` ns of it, at its end, were a wait."""
        end = now()
        calls = self._calls
        calls.append(calls.pack(begin, end, blocked, size, 0, self.thread.tid, kind, self.name[name], site, 0))
        if end - self._flushed > _FLUSH_NS:
            self.flush_if_due(end)

    def instant(self, name: str, *, size: int = 0, site: int = -1) -> None:
        """An OTHER call of no length: it says that something happens at a line, and takes no part of a step."""
        when = now()
        calls = self._calls
        calls.append(calls.pack(when, when, 0, size, 0, self.thread.tid, CallKind.OTHER, self.name[name], site, 0))
        if when - self._flushed > _FLUSH_NS:
            self.flush_if_due(when)

    def region(self, name: str, begin: int, depth: int) -> None:
        """A region that began at `begin` ends now, at what was the depth of this thread then.

        With `thread.depth = depth + 1` before it as good as a `Region`, and one call where that takes three.
        """
        end = now()
        thread, regions = self.thread, self.regions
        thread.depth = depth
        regions.append(regions.pack(begin, end, thread.tid, self.name[name], depth))
        if end - self._flushed > _FLUSH_NS:
            self.flush_if_due(end)

    def _own_time(self, began: int, tid: int) -> None:
        """Recording itself takes time of the steps that it records: it is in the ledger by name."""
        self.regions.write(began, now(), tid, self.name["recording"], self.thread.depth)

    def site(self, frame: FrameType) -> int:
        """Number of the line that `frame` is at."""
        code, instruction = frame.f_code, frame.f_lasti  # f_lineno decodes a table each time: asked for once each
        known = self._sites.get(id(code))
        if known is None:
            if len(self._sites) >= _MOST_CODES:
                self._sites.clear()
            known = self._sites[id(code)] = code, {}
        number = known[1].get(instruction)
        if number is None:
            line = frame.f_lineno
            number = known[1][instruction] = self._site(
                (code.co_filename, line), lambda: {"file": code.co_filename, "line": line, "function": code.co_qualname}
            )
        return number

    def write_meta(self) -> None:
        """Replace source.json atomically: what this process is, and what is said of it."""
        if self._made:
            self._replace_meta()
        else:
            self.make_folder()

    def _replace_meta(self) -> None:
        if not self.is_ours() or self.failed:
            return
        with self._telling:
            try:
                self._replace_meta_by(json.dumps(self._meta(), default=str))
            except OSError as error:
                self.fail(error)
            except Exception as error:  # noqa: BLE001 - of a fact of the program's; the records go on without it
                warn(f"what this process said of itself could not be written: {type(error).__name__}: {error}")

    def _meta(self) -> dict[str, Any]:
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

    def _replace_meta_by(self, text: str) -> None:
        """:raises OSError: it cannot be written."""
        # a name of its own: the handler of a signal may do the same in the middle of this
        temporary = self.directory / f"{tables.SOURCE_META}.{next(self._tellings)}.new"
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(self.directory / tables.SOURCE_META)

    def flush(self) -> None:
        for stream in self._streams.values():
            stream.flush()

    def close(self) -> None:
        """Give the files back; nothing more is written."""
        for stream in self._streams.values():
            stream.close()

    def append_records(self, table: str, records: bytes | bytearray | memoryview) -> None:
        """Append whole records of `table` in the layout of `profiler.run.tables`."""
        self._streams[table].raw(records)


def _control() -> ControlledProgram | None:
    """What lets the program run by turns, where a gate asks for that."""
    path = os.environ.get(tables.ENV_CONTROL)
    if not path:
        return None
    from profiler.agent.controlled import ControlledProgram

    return ControlledProgram(path)


class _Thread(threading.local):
    """What a thread's open regions need: its number (a system call to ask for), and how deep they nest."""

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
    """The recorder of this process: the one that is there, or a new one if the environment (or the caller) asks for it.

    In a forked child the parent's does not count.
    """
    there: Recorder | None = sys.__dict__.get(_SLOT)
    if there is not None and there.pid == os.getpid():
        return there
    asked = os.environ.get(tables.ENV_RUN)
    if directory is None and not asked:
        return None
    if there is not None:
        there.close()
    made = Recorder(directory or Path(asked or ""), level or os.environ.get(tables.ENV_LEVEL, "light"))
    setattr(sys, _SLOT, made)
    return made


def stop() -> None:
    """Write what waits and forget the recorder of this process."""
    there: Recorder | None = sys.__dict__.pop(_SLOT, None)
    if there is not None:
        there.flush()
        there.close()
