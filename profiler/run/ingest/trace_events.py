"""Reads the file of a torch profiler trace (Kineto) into events: what devices did, runtime calls, operators."""

from __future__ import annotations

import gc
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final, NamedTuple

from profiler.core.errors import ProfilerError

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


def read_json(path: Path) -> Any:
    """Parse the JSON in `path`, plain or gzipped. Fractions stay text: a float cannot represent ns of this century.

    :raises ProfilerError: it cannot be read, is cut off, or is no JSON.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ProfilerError(f"cannot read {path}: {error.strerror}") from error
    if data.startswith(_SQLITE) or path.suffix in _NSIGHT:
        raise ProfilerError(f"{path} is a recording of Nsight Systems, which is not read yet")
    if not data:
        raise ProfilerError(f"{path} is not a run directory, and as a trace it is empty")
    try:
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
        # old exporters wrote names with raw control characters and broken UTF-8 into otherwise good traces
        text = data.decode("utf-8-sig", "replace")
        del data
        with _no_garbage_collection():
            return json.loads(text, parse_float=str, strict=False)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ProfilerError(f"{path} is cut off, or damaged: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ProfilerError(f"{path} is not a run directory, and no trace either: no JSON ({error})") from error


def nanoseconds(microseconds: str | int) -> int:
    """Convert decimal µs to integer ns, exactly; fractions of a ns are rounded.

    :raises ValueError: not a number.
    """
    if isinstance(microseconds, int):
        return microseconds * 1000
    integer, _, fraction = microseconds.partition(".")
    if len(fraction) <= _NS_DIGITS and not fraction.strip("0123456789") and not integer.startswith("-"):
        return int(integer) * 1000 + (int(fraction.ljust(_NS_DIGITS, "0")) if fraction else 0)
    try:
        return round(Decimal(microseconds) * 1000)
    except (InvalidOperation, OverflowError) as error:
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
_LATEST: Final = 1 << 62
"""ns; the year 2116: nothing is recorded later, and sums of two still fit into 64 bits."""


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

    meta: Mapping[str, Any]
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
    """Number of events without a valid time; they are left out."""

    @property
    def device_kind(self) -> str:
        """cpu, cuda (also AMD's GPUs), or the name of another kind of accelerator: xpu, mtia, privateuse1."""
        if not (self.device or self.runtime):
            on_host = (event.name for events in (self.operators, self.annotations) for event in events)
            return "cuda" if any(map(_OF_GPU.search, on_host)) else "cpu"
        category = self.runtime[0].category if self.runtime else ""
        return category.partition("_")[0] if category in _OTHER_RUNTIMES else "cuda"


def read_trace(path: Path) -> Trace:
    """The trace at `path`: an object with traceEvents, or a bare list of them; gzipped or not.

    :raises ProfilerError: it cannot be read, or is no trace of torch's profiler.
    """
    document = read_json(path)
    meta = document if isinstance(document, dict) else {}
    events = document if isinstance(document, list) else meta.get("traceEvents")
    if not isinstance(events, list):
        raise ProfilerError(f"{path} is no trace of torch's profiler: it has no traceEvents")
    trace = Trace({name: value for name, value in meta.items() if name != "traceEvents"})
    _sort(events, trace)
    if not (trace.device or trace.runtime or trace.operators or trace.annotations):
        raise ProfilerError(f"{path} is no trace of torch's profiler, or an empty one: it has no event of a known kind")
    return trace


def _sort(events: Iterable[Any], trace: Trace) -> None:
    base = _integer(trace.meta.get("baseTimeNanoseconds"))  # since 2024 ts counts from here; before, from 1970
    threads = _Threads()
    pids: dict[Any, int] = {}
    for event in events:
        if not isinstance(event, dict):
            continue
        if event.get("ph") != "X":
            if event.get("ph") == "s" and event.get("cat") == FORWARD_TO_BACKWARD:
                trace.forward[threads.number(event.get("tid"))] += 1
            continue
        category = event.get("cat")
        is_device = category in DEVICE_CATEGORIES
        host_events = None if is_device else _host_list(trace, category, event.get("name"))
        if not is_device and host_events is None:
            continue
        try:
            begin = nanoseconds(event["ts"]) + base
            end = begin + max(0, nanoseconds(event.get("dur") or 0))
            name = str(event["name"])
            if not 0 <= begin <= end < _LATEST:
                raise ValueError(f"{begin} to {end} ns")
        except (ValueError, KeyError, TypeError, AttributeError):
            trace.broken += 1
            continue
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        if host_events is None:
            trace.device.append(_on_device(event, args, (begin, end, str(category), name)))
        else:
            tid, correlation = threads.number(event.get("tid")), _integer(args.get("correlation"))
            host_events.append(OnHost(begin, end, str(category), name, tid, correlation))
            pids[event.get("pid")] = pids.get(event.get("pid"), 0) + 1
    trace.pid = _integer(max(pids, key=lambda pid: pids[pid], default=0))


def _host_list(trace: Trace, category: Any, name: Any) -> list[OnHost] | None:
    if category in OPERATOR_CATEGORIES:
        is_annotation = str(name).startswith(ANNOTATION_PREFIXES) or not _OPERATOR.search(str(name))
        return trace.annotations if is_annotation else trace.operators
    if category in RUNTIME_CATEGORIES:
        return trace.runtime
    if category == FRAME_CATEGORY:
        return trace.frames if ".py(" in str(name) else None
    return trace.annotations if category == ANNOTATION_CATEGORY else None


def _on_device(event: Mapping[str, Any], args: Mapping[str, Any], what: tuple[int, int, str, str]) -> OnDevice:
    stream, device = args.get("stream", event.get("tid")), args.get("device", event.get("pid"))
    return OnDevice(
        *what,
        bytes=_integer(args.get("bytes")),
        correlation=_integer(args.get("correlation")),
        stream=_integer(stream) & _INT32,
        device=_integer(device) & _INT32,
    )


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
