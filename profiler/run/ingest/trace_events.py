"""Reads the file of a torch profiler trace (Kineto) into events: what devices did, runtime calls, operators."""

from __future__ import annotations

import codecs
import gc
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from sys import intern
from typing import IO, Any, Final, NamedTuple

from profiler.core.errors import ProfilerError
from profiler.core.files import check_size, open_file
from profiler.core.units import size
from profiler.run import tables

DEVICE_CATEGORIES: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"})
"""Categories of device activity; the capitalized ones are from 2021."""
_OTHER_RUNTIMES: Final = frozenset(
    {"xpu_runtime", "xpu_driver", "mtia_runtime", "privateuse1_runtime", "privateuse1_driver"}
)
RUNTIME_CATEGORIES: Final = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "Runtime"}) | _OTHER_RUNTIMES
OPERATOR_CATEGORIES: Final = frozenset({"cpu_op", "Operator"})
ANNOTATION_CATEGORY: Final = "user_annotation"
FRAME_CATEGORY: Final = "python_function"
"""Calls of Python functions, which a trace has if it was recorded with with_stack."""
FORWARD_TO_BACKWARD: Final = "fwdbwd"
"""Category of the arrows from an operator of the forward pass to the one of the backward pass."""
STEP_PREFIX: Final = "ProfilerStep#"
ANNOTATION_PREFIXES: Final = (STEP_PREFIX, "enumerate(DataLoader)", "Optimizer.")
"""Prefixes of torch's own annotations, which until 2021 were among the operators."""
_OPERATOR: Final = re.compile(r"::|Backward|^Torch|^record_param_comms$")
"""Names of operators. Others among them are stretches that a program named with record_function."""
_OF_GPU: Final = re.compile(r"^nccl:|^aten::_?(cudnn|miopen)_(rnn|convolution|batch_norm)")
"""Names on the host that only a program with a GPU has, in a trace of the CPU's activities alone. `cudnn` in a name is
not enough: an LSTM on the CPU calls aten::cudnn_is_acceptable."""
_GZIP: Final = b"\x1f\x8b"
_SQLITE: Final = b"SQLite format 3\x00"
_NSIGHT: Final = (".sqlite", ".nsys-rep", ".qdrep")
_NS_DIGITS: Final = 3  # of a microsecond
_PIECE: Final = 1 << 20
"""Bytes that are read at a time."""
_LONGEST: Final = 1 << 24
"""Characters of an event, or of another value of the document. Those of real traces have some thousand."""
_MAX_EMPTY: Final = 1_000_000
"""Events without a phase. A real trace has none, and 60 MB of them would take half a minute."""
_IDS: Final = frozenset({int, str, type(None)})
"""Types of the ids of processes and threads; a fraction is text."""
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_AFTER_VALUE: Final = re.compile(r"[ \t\r\n]*([,\]])[ \t\r\n]*")


class _Document:
    """A JSON document, plain or gzipped, of which a piece at a time is in memory."""

    def __init__(self, file: IO[bytes], path: Path, *, is_packed: bool) -> None:
        self._file: Any = gzip.GzipFile(fileobj=file) if is_packed else file
        self._path = path
        # old exporters wrote names with raw control characters and broken UTF-8 into otherwise good traces
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        # fractions stay text: a float cannot represent ns of this century
        decoder: Any = json.JSONDecoder(parse_float=str, parse_constant=str, strict=False)
        self._scan = decoder.scan_once
        self._bytes = 0
        self._text, self._at = "", 0
        self.meta: dict[str, Any] = {}
        """The keys of the document beside its events, known when the last event was taken."""

    def events(self) -> Iterator[Any]:
        """Yield the values of the list `traceEvents`, or of a document that is a list.

        :raises ProfilerError: there is no such list, or more bytes than may be read.
        :raises ValueError: it is no JSON.
        """
        has_events = False
        if self._take("["):
            has_events = True
            yield from self._values()
        elif self._take("{"):
            while not self._take("}"):
                key = self._value()
                if not isinstance(key, str) or not self._take(":"):
                    raise ValueError("a key and its value are expected")
                if key == "traceEvents" and self._take("["):
                    has_events = True
                    yield from self._values()
                else:
                    self.meta[key] = self._value()
                self._take(",")
        else:
            self._value()
        if not has_events:
            raise ProfilerError(f"{self._path} is no trace of torch's profiler: it has no traceEvents")

    def _values(self) -> Iterator[Any]:
        """Yield the values of a list that has begun. Its loop runs once for each event, so it calls few functions."""
        if self._take("]"):
            return
        scan, after_value = self._scan, _AFTER_VALUE.match
        text, at = self._text, self._at
        fault: Exception = ValueError("a comma, or the end of a list, is expected")
        while True:
            try:
                value, end = scan(text, at)
                separator = after_value(text, end)
            except (StopIteration, ValueError) as error:
                separator, fault = None, error
            if separator is None or separator.end() == len(text):  # the piece may end within a value
                self._at = at
                if self._read_on():
                    text, at = self._text, 0
                    continue
                if separator is None:
                    raise ValueError(_reason(fault))
            at = separator.end()
            yield value
            if separator[1] == "]":
                self._at = at
                return

    def _value(self) -> Any:
        while True:
            try:
                value, end = self._scan(self._text, self._at)
            except (StopIteration, ValueError) as error:
                if not self._read_on():
                    raise ValueError(_reason(error)) from error
                continue
            if end < len(self._text) or not self._read_on():  # a number may go on
                self._at = end
                return value

    def _take(self, character: str) -> bool:
        """Skip space, then `character` and space behind it; False where another one follows."""
        is_there = self._skip_space() == character
        if is_there:
            self._at += 1
            self._skip_space()
        return is_there

    def _skip_space(self) -> str:
        """Skip space; returns the character that follows, at the end of the file none."""
        while True:
            space = len(_SPACE.match(self._text, self._at)[0])  # type: ignore[index]
            if self._at + space < len(self._text) or not self._read_on():
                self._at += space
                return self._text[self._at : self._at + 1]

    def _read_on(self) -> bool:
        """Read at least as much again as is in memory; False at the end of the file."""
        rest = len(self._text) - self._at
        if rest > _LONGEST:
            raise ValueError(f"a value is no JSON, or longer than {size(_LONGEST)} with the space before it")
        data = self._file.read(max(_PIECE, rest))
        self._bytes += len(data)
        check_size(self._path, self._bytes, "unpacks to")
        self._text, self._at = self._text[self._at :] + self._decoder.decode(data, final=not data), 0
        return bool(data)


def _reason(error: Exception) -> str:
    """Return why a text is no JSON. Its position is left out, which would be that in a piece of the file."""
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    return (
        "it ends, or has another character, where a value is expected"
        if isinstance(error, StopIteration)
        else str(error)
    )


def nanoseconds(microseconds: str | int) -> int:
    """Convert decimal µs to integer ns, exactly; fractions of a ns are rounded.

    :raises ValueError: not a number, or beyond what a clock shows.
    """
    if isinstance(microseconds, int):
        return microseconds * 1000
    integer, _, fraction = microseconds.partition(".")
    if len(fraction) <= _NS_DIGITS and not fraction.strip("0123456789") and not integer.startswith("-"):
        return int(integer) * 1000 + (int(fraction.ljust(_NS_DIGITS, "0")) if fraction else 0)
    try:
        number = Decimal(microseconds)
        if not abs(number) < tables.LATEST_NS:  # a large exponent would become an integer of as many digits
            raise ValueError(f"{microseconds!r} is beyond all clocks")
        return round(number * 1000)
    except ArithmeticError as error:
        raise ValueError(f"{microseconds!r} is no time") from error


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector: traversing millions of new containers would take half of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


_INT32: Final = 0x7FFFFFFF
_INT64: Final = (1 << 63) - 1


class OnDevice(NamedTuple):
    """An activity of a device; times in ns of the trace's clock."""

    begin: int
    end: int
    category: str
    name: str
    bytes: int
    correlation: int
    stream: int
    device: int


class OnHost(NamedTuple):
    """A runtime call, an operator or an annotation."""

    begin: int
    end: int
    category: str
    name: str
    tid: int
    correlation: int


@dataclass
class Trace:
    """The events of a trace; times are ns of its own clock, the time of day (UTC)."""

    meta: Mapping[str, Any] = field(default_factory=dict)
    pid: int = 0
    device: list[OnDevice] = field(default_factory=list)
    runtime: list[OnHost] = field(default_factory=list)
    operators: list[OnHost] = field(default_factory=list)
    annotations: list[OnHost] = field(default_factory=list)
    frames: list[OnHost] = field(default_factory=list)
    """Calls of Python functions that are in a file; those of native code have none."""
    forward: Counter[int] = field(default_factory=Counter)
    """Thread -> its operators whose backward pass is in the trace."""
    broken: int = 0
    """Number of events without a valid time, or with values of other types; they are left out."""

    @property
    def device_kind(self) -> str:
        """cpu, cuda (also AMD's GPUs), or the name of another kind of accelerator: xpu, mtia, privateuse1."""
        if not (self.device or self.runtime):
            on_host = (event.name for events in (self.operators, self.annotations) for event in events)
            return "cuda" if any(map(_OF_GPU.search, on_host)) else "cpu"
        category = self.runtime[0].category if self.runtime else ""
        return category.partition("_")[0] if category in _OTHER_RUNTIMES else "cuda"


def read_trace(path: Path) -> Trace:
    """Return the trace at `path`: an object with traceEvents, or a bare list of them; gzipped or not.

    :raises ProfilerError: it cannot be read, or is no trace of torch's profiler.
    """
    trace = Trace()
    try:
        with open_file(path) as file, _no_garbage_collection():
            head = file.read(len(_SQLITE))
            file.seek(0)
            if head == _SQLITE or path.suffix in _NSIGHT:
                raise ProfilerError(f"{path} is a recording of Nsight Systems, which is not read yet")
            if not head:
                raise ProfilerError(f"{path} is not a run directory, and as a trace it is empty")
            _sort(_Document(file, path, is_packed=head.startswith(_GZIP)), trace, path)
    except FileNotFoundError as error:
        raise ProfilerError(f"cannot read {path}: {error.strerror}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise ProfilerError(f"{path} is cut off, or damaged: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ProfilerError(f"{path} is not a run directory, and no trace either: no JSON ({error})") from error
    if not (trace.device or trace.runtime or trace.operators or trace.annotations):
        raise ProfilerError(f"{path} is no trace of torch's profiler, or an empty one: it has no event of a known kind")
    return trace


def _sort(document: _Document, trace: Trace, path: Path) -> None:
    """Put the events into the lists of `trace`. What follows relies on the types that are checked here."""
    threads = _Threads()
    pids: dict[Any, int] = {}
    empty = 0
    for event in document.events():
        phase = event.get("ph") if isinstance(event, dict) else None
        if phase != "X":
            if phase == "s" and event.get("cat") == FORWARD_TO_BACKWARD:
                trace.forward[threads.number(event.get("tid"))] += 1
            elif phase is None:
                empty += 1
                if empty > _MAX_EMPTY:
                    raise ProfilerError(f"{path} is no trace of torch's profiler: {empty:,} of its events are empty")
            continue
        category, name, pid, tid = event.get("cat"), event.get("name"), event.get("pid"), event.get("tid")
        if category is None:
            continue
        if not (type(category) is type(name) is str and type(pid) in _IDS and type(tid) in _IDS):
            trace.broken += 1
            continue
        is_device = category in DEVICE_CATEGORIES
        host_events = None if is_device else _host_list(trace, category, name)
        if not is_device and host_events is None:
            continue
        try:
            begin = nanoseconds(event["ts"])
            end = begin + max(0, nanoseconds(event.get("dur") or 0))
        except (ValueError, KeyError, TypeError, AttributeError):
            trace.broken += 1
            continue
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        what = begin, end, intern(category), intern(name)
        if host_events is None:
            stream, device = args.get("stream", event.get("tid")), args.get("device", event.get("pid"))
            trace.device.append(
                OnDevice(
                    *what,
                    bytes=_integer(args.get("bytes")),
                    correlation=_integer(args.get("correlation")),
                    stream=_integer(stream) & _INT32,
                    device=_integer(device) & _INT32,
                )
            )
        else:
            host_events.append(OnHost(*what, threads.number(tid), _integer(args.get("correlation"))))
            pids[pid] = pids.get(pid, 0) + 1
    trace.meta = document.meta
    trace.pid = _integer(max(pids, key=lambda pid: pids[pid], default=0))
    _place(trace)


def _place(trace: Trace) -> None:
    """Move the times to the time of day, and leave out events at impossible times.

    Since 2024 times count from a base, which stands behind the events; before, they count from 1970.
    """
    base = _integer(trace.meta.get("baseTimeNanoseconds"))
    lists: tuple[list[Any], ...] = (trace.device, trace.runtime, trace.operators, trace.annotations, trace.frames)
    for events in lists:
        known, kind = len(events), type(events[0]) if events else tuple
        if base:  # a named tuple made by its own constructor would take twice as long
            events[:] = [tuple.__new__(kind, (each[0] + base, each[1] + base, *each[2:])) for each in events]
        if any(each[0] < 0 or each[1] >= tables.LATEST_NS for each in events):
            events[:] = [each for each in events if each[0] >= 0 and each[1] < tables.LATEST_NS]
        trace.broken += known - len(events)


def _host_list(trace: Trace, category: str, name: str) -> list[OnHost] | None:
    if category in OPERATOR_CATEGORIES:
        is_annotation = name.startswith(ANNOTATION_PREFIXES) or not _OPERATOR.search(name)
        return trace.annotations if is_annotation else trace.operators
    if category in RUNTIME_CATEGORIES:
        return trace.runtime
    if category == FRAME_CATEGORY:
        return trace.frames if ".py(" in name else None
    return trace.annotations if category == ANNOTATION_CATEGORY else None


class _Threads:
    """Numbers of threads: their ids, and negative numbers for threads that only have a name."""

    def __init__(self) -> None:
        self._names: dict[Any, int] = {}

    def number(self, tid: Any) -> int:
        try:
            number = int(tid)
        except (ValueError, TypeError, OverflowError):  # Infinity
            number = _INT64 + 1
        return number if abs(number) <= _INT64 else self._names.setdefault(str(tid), -1 - len(self._names))


def _integer(value: Any) -> int:
    """`value` as an integer; 0 if it is none, or beyond 64 bits."""
    try:
        number = int(value)
    except (ValueError, TypeError, OverflowError):  # Infinity
        return 0
    return number if abs(number) <= _INT64 else 0
