"""What a training program imports to mark itself: regions, steps, counters, and a device's own records.

    from profiler import marks
    marks.describe(device="cuda", step="chunk")
    marks.open_step()                      # what came before belongs to no step
    for chunk in chunks:
        with marks.region("tokenize"): ...
        marks.gauge("loss", loss)
        marks.step(tokens=3000)            # closes the step that began at the boundary before

Near-free when nothing records: a function call that returns at once. Recording is switched on by the
environment that `python -m profiler run` sets (PROFILER_RUN_DIR, PROFILER_LEVEL), never by the program.
At level `light` regions and single calls are not recorded; steps, counters and gauges are.
Only the standard library is imported here, and no Python thread is started.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import IO, Any, Final

from profiler.run import tables
from profiler.run.tables import ValueKind

now: Final = time.monotonic_ns
"""The clock of every record: CLOCK_MONOTONIC in ns, the same in all processes of a machine."""

_FLUSH_BYTES: Final = 1 << 16  # a write() this large costs about as much as a small one
_FLUSH_NS: Final = 250_000_000  # what kill -9 can lose: steps of the last quarter of a second
_PR_SET_PTRACER: Final = 0x59616D61  # prctl(2): the process that may trace us under Yama


class _Null:
    """The region of a program that nobody records."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


_NULL: Final = _Null()


class _Stream:
    """One append-only table, buffered; the file appears with its first flush. Any thread may append.

    Records wait in a deque, whose append and popleft need no lock: a write gives up the GIL, and other threads go on.
    """

    def __init__(self, owner: Recorder, table: str) -> None:
        packer = tables.packer(table)
        self._pack = packer.pack
        self._most = _FLUSH_BYTES // packer.size
        self._waiting: deque[bytes] = deque()
        self._owner = owner
        self._table = table
        self._file: IO[bytes] | None = None
        self._writing = threading.Lock()

    def write(self, *fields: float) -> None:
        self._waiting.append(self._pack(*fields))
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

    def _put(self, data: memoryview) -> None:
        if self._owner.failed or not data:
            return
        try:
            if self._file is None:
                # unbuffered, and open as long as the program lives
                self._file = open(self._owner.directory / f"{self._table}.bin", "ab", buffering=0)  # noqa: SIM115
            written = 0
            while written < len(data):  # a nearly full disk takes a part, and then fails
                written += self._file.write(data[written:])
        except OSError as error:
            self._owner.fail(error)


class _Texts:
    """Interned strings: an id each, written as JSON lines the first time they are seen."""

    def __init__(self, owner: Recorder, file_name: str) -> None:
        self._ids: dict[Any, int] = {}
        self._owner = owner
        self._file_name = file_name
        self._adding = threading.Lock()

    def __call__(self, key: Any, record: Callable[[], dict[str, Any]] | None = None) -> int:
        known = self._ids.get(key)
        if known is not None:
            return known
        with self._adding:
            if key in self._ids:
                return self._ids[key]
            number = len(self._ids)
            self._write({"id": number, **(record() if record else {"text": key})})
            self._ids[key] = number  # last: another thread must not use an id that is not written yet
        return number

    def _write(self, line: dict[str, Any]) -> None:
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
        self.directory = directory / f"source-{self.pid}"
        self.failed = ""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self.fail(error)
        self._streams = {name: _Stream(self, name) for name in tables.TABLES}
        self._steps = self._streams["steps"]
        self._values = self._streams["values"]
        self.regions = self._streams["regions"]
        self.name = _Texts(self, tables.NAMES)
        self._site = _Texts(self, tables.SITES)
        self._sites: dict[tuple[CodeType, int], int] = {}
        self.facts: dict[str, Any] = {}
        self.on_step: list[Callable[[], None]] = []
        self.device_cpu: Callable[[], int] = lambda: 0
        self.thread = _Thread()
        self.index = 0
        self.counters: dict[str, float] = {}
        self.gauges: dict[str, float] = {}
        self.boundary = self._clocks()
        self._flushed = self.boundary[0]
        self.write_meta()
        allow_tracing()

    def fail(self, error: OSError) -> None:
        """Stop recording and say so once; the program that we record goes on."""
        if not self.failed:
            self.failed = str(error)
            with suppress(OSError):
                (self.directory / tables.STOPPED).touch()
            print(f"profiler: recording stopped: {error}; the program goes on", file=sys.stderr)

    def _clocks(self) -> tuple[int, int, int, int]:
        return now(), time.thread_time_ns(), time.process_time_ns(), self.device_cpu()

    def open_step(self) -> None:
        for callback in self.on_step:
            callback()  # what a device counted until now belongs to no step
        self.boundary = self._clocks()
        self.counters.clear()
        self.gauges.clear()

    def step(self, tokens: int, warmup: bool) -> None:
        began = now()
        for callback in self.on_step:
            callback()  # a device adds its counters and drains its logs: that cost belongs to this step
        tid = self.thread.tid
        if self.detailed:
            self._own_time(began, tid)
        before = self.boundary
        after = self.boundary = self._clocks()
        deltas = (late - early for early, late in zip(before[1:], after[1:], strict=True))
        self._steps.write(self.index, before[0], after[0], tokens, *deltas, tid, warmup)
        for kind, amounts in ((ValueKind.COUNTER, self.counters), (ValueKind.GAUGE, self.gauges)):
            for name, value in amounts.items():
                self._values.write(after[0], self.index, value, self.name(name), kind)
            amounts.clear()
        self.index += 1
        if after[0] - self._flushed > _FLUSH_NS:
            self._flushed = after[0]
            self.flush()
        if self.detailed:
            self._own_time(after[0], tid)

    def _own_time(self, began: int, tid: int) -> None:
        """Recording itself takes time of the steps that it records: it is in the ledger by name."""
        self.regions.write(began, now(), tid, self.name("recording"), self.thread.depth)

    def site(self, frame: FrameType) -> int:
        """Number of the line that `frame` is at."""
        key = frame.f_code, frame.f_lasti  # f_lineno decodes a table each time: asked for once an instruction
        known = self._sites.get(key)
        if known is not None:
            return known
        code, line = frame.f_code, frame.f_lineno
        number = self._sites[key] = self._site(
            (code.co_filename, line), lambda: {"file": code.co_filename, "line": line, "function": code.co_qualname}
        )
        return number

    def write_meta(self) -> None:
        """Replace source.json atomically: what this process is, and what it said of itself."""
        meta = {
            "schema": tables.SCHEMA,
            "pid": self.pid,
            "ppid": os.getppid(),
            "rank": int(os.environ.get("RANK", "0") or 0),
            "argv": sys.argv,
            "level": self.level,
            "main_tid": threading.main_thread().native_id,
            "facts": self.facts,
        }
        temporary = self.directory / (tables.SOURCE_META + ".new")
        try:
            temporary.write_text(json.dumps(meta, default=str), encoding="utf-8")
            temporary.replace(self.directory / tables.SOURCE_META)
        except OSError as error:
            self.fail(error)

    def flush(self) -> None:
        for stream in self._streams.values():
            stream.flush()

    def raw(self, table: str, records: bytes | bytearray | memoryview) -> None:
        """Append whole records of `table` in the layout of `profiler.run.tables`."""
        self._streams[table].raw(records)


class _Thread(threading.local):
    """What a thread's open regions need: its number (a system call to ask for), and how deep they nest."""

    def __init__(self) -> None:
        self.tid = threading.get_native_id()
        self.depth = 0


class _Region:
    """One open region."""

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
        end = now()
        recorder = self._recorder
        thread = recorder.thread
        thread.depth = depth = self._depth
        recorder.regions.write(self._begin, end, thread.tid, recorder.name(self._name), depth)


_recorder: Recorder | None = None


def recorder() -> Recorder | None:
    """The recorder of this process, or None. A device reads it once and keeps it."""
    return _recorder


def region(name: str) -> AbstractContextManager[None]:
    """A named stretch of host work: tokenize, data, h2d, log, checkpoint, ... Regions nest."""
    active = _recorder
    if active is None or not active.detailed:
        return _NULL
    return _Region(active, name)


def open_step() -> None:
    """Begin a step now: what happened since the last boundary belongs to no step."""
    if _recorder is not None:
        _recorder.open_step()


def step(tokens: int = 0, warmup: bool = False) -> None:
    """Close the current step and begin the next. Everything since the boundary before is in it."""
    if _recorder is not None:
        _recorder.step(tokens, warmup)


def count(name: str, amount: float = 1) -> None:
    """Add to a counter of the current step."""
    if _recorder is not None:
        counters = _recorder.counters
        counters[name] = counters.get(name, 0.0) + float(amount)


def gauge(name: str, value: float) -> None:
    """Set a value of the current step: loss, accuracy, ..."""
    if _recorder is not None:
        _recorder.gauges[name] = float(value)


def describe(**facts: Any) -> None:
    """Say what this program is: device, corpus, preset, step, ... (JSON values). Compared before any ratio."""
    if _recorder is not None:
        _recorder.facts.update(facts)
        _recorder.write_meta()


def allow_tracing() -> None:
    """Let the recorder read our stacks where Yama restricts ptrace; elsewhere no effect.

    The recorder need not be our parent: a shell or a launcher may stand between.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes  # 10 ms to import on a cold start: only when something records

    tracer = os.environ.get(tables.ENV_RECORDER, "")
    pid = int(tracer) if tracer.isdecimal() else os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)


def _start() -> None:
    """Begin recording if the environment asks for it; called at import and in forked children."""
    global _recorder
    _recorder = None
    directory = os.environ.get(tables.ENV_RUN)
    if directory:
        _recorder = Recorder(Path(directory), os.environ.get(tables.ENV_LEVEL, "light"))


def _finish() -> None:
    if _recorder is not None:
        _recorder.flush()


_start()
atexit.register(_finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start)
