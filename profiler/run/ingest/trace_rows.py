"""Converts the events of a Kineto trace into rows of our tables: calls, activities, regions, steps, counters.

The names of runtime calls are those of CUDA, HIP and torch, of all years.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profiler.run.ingest.trace_events import ANNOTATION_PREFIXES, STEP_PREFIX, OnDevice, OnHost, Trace
from profiler.run.model import StepDefinition, StepKind, Table
from profiler.run.source import dtype_of
from profiler.run.tables import MEMORY_FILL, ActivityKind, CallKind, ValueKind

OPERATOR_REGION: Final = "operator "
"""Prefix of regions that are torch operators: the breakdown calls them framework, on a CPU compute."""
_FILL: Final = "aten::fill_"
_GETS_MEMORY: Final = re.compile(r"^aten::(empty|resize)")
FRAME_REGION: Final = "frame "
"""Prefix of regions that are calls of Python functions: `frame train.py(12): main`."""

_LIBRARY: Final = re.compile(r"^(cuda|hip|cu)(?=[A-Z])")
_CALLS: Final[tuple[tuple[str, CallKind], ...]] = (
    (r"Memcpy.*(HtoD|HToD)", CallKind.H2D),
    (r"Memcpy.*(DtoH|DToH)", CallKind.D2H),
    (r"Memcpy", CallKind.D2D),
    (r"Memset", CallKind.MEMSET),
    (r"(Device|Stream|Event|Ctx)Synchronize", CallKind.SYNC),
    (r"^Event|StreamWaitEvent", CallKind.EVENT),
    (r"Launch", CallKind.LAUNCH),
    (r"Malloc|HostAlloc|^MemAlloc|^MemCreate|^MemHostAlloc", CallKind.ALLOC),
    (r"^Free|^MemFree|^MemRelease|^HostFree", CallKind.FREE),
)
"""The first match counts; a copy gets the direction of the activity that it caused, if there is one."""
_WAITING_COPIES: Final = frozenset({"Memcpy", "Memcpy2D", "Memcpy3D", "MemcpyWithStream"})
"""Copies that return when the device is done. MemcpyWithStream is from ROCm: its waits appear nowhere else."""
COMMUNICATION: Final = re.compile(r"^(nccl|rccl|msccl|nvshmem)|cross_device_reduce", re.IGNORECASE)


def call_kind(name: str) -> CallKind:
    """Return the kind of a runtime call by its name."""
    bare = _LIBRARY.sub("", name)
    if bare.startswith(("Func", "Occupancy")):
        return CallKind.OTHER
    return next((kind for pattern, kind in _CALLS if re.search(pattern, bare)), CallKind.OTHER)


def waits_by_itself(name: str) -> bool:
    """Return whether the host waits in this call until the device is done."""
    bare = _LIBRARY.sub("", name)
    return bare in _WAITING_COPIES or call_kind(name) is CallKind.SYNC


def activity_kind(category: str, name: str) -> ActivityKind:
    """Return the kind of something that a device did; copies between devices and within one are D2D."""
    if category in ("kernel", "Kernel"):
        return ActivityKind.COMMUNICATION if COMMUNICATION.search(name) else ActivityKind.KERNEL
    if category in ("gpu_memset", "Memset"):
        return ActivityKind.MEMSET
    if "HtoD" in name:
        return ActivityKind.H2D
    return ActivityKind.D2H if "DtoH" in name else ActivityKind.D2D


def pageable(name: str) -> bool:
    """Return whether a memcpy activity had pageable memory on the host's side: its call waits, Async or not."""
    return "Pageable" in name


def region_name(annotation: str) -> str:
    """Return our name for an annotation of torch; annotations of the program keep their name."""
    if annotation.startswith("enumerate(DataLoader)"):  # of one with workers, a trace has only the waits for them
        return "input" if "_MultiProcessing" in annotation else "data"
    return "optimizer" if annotation.startswith("Optimizer.step#") else annotation


NameOf = Callable[[str], int]
_COPY_CALLS: Final = {ActivityKind.H2D: CallKind.H2D, ActivityKind.D2H: CallKind.D2H, ActivityKind.D2D: CallKind.D2D}
_COPIES: Final = frozenset(_COPY_CALLS.values())


def filled(table: str, count: int, *, loaded: bool, **columns: npt.ArrayLike) -> Table:
    """`count` rows of `table` with these columns; the others are 0."""
    rows = np.zeros(count, dtype_of(table, loaded=loaded))
    for name, values in columns.items():
        rows[name] = values
    return rows


def activities(trace: Trace, name_of: NameOf, *, loaded: bool) -> Table:
    """Return all activities of devices, including kernels that no call of the trace launched (CUDA graphs)."""
    kinds: dict[tuple[str, str], tuple[int, int]] = {}
    rows = []
    for event in trace.device:
        key = event.category, event.name
        if key not in kinds:
            kinds[key] = int(activity_kind(*key)), name_of(event.name)
        rows.append((event.begin, event.end, event.bytes, event.correlation, *kinds[key], event.stream, event.device))
    fields = ("begin", "end", "bytes", "correlation", "kind", "name", "stream", "device")
    return _table("activities", fields, rows, loaded=loaded)


def calls(trace: Trace, name_of: NameOf, *, loaded: bool) -> Table:
    """Runtime calls; a copy gets the direction, bytes and stream of its activity.

    The host counts as blocked during a synchronizing call, a copy that returns when the device is done, and a
    copy from or to pageable memory, which waits even if it is called Async.
    """
    kinds: dict[str, tuple[CallKind, bool, int]] = {}
    caused = {event.correlation: event for event in trace.device if event.correlation}
    rows = []
    for event in trace.runtime:
        if event.name not in kinds:
            kind, waits = call_kind(event.name), waits_by_itself(event.name)
            kinds[event.name] = kind, waits, name_of(event.name)
        kind, waits, name = kinds[event.name]
        size = stream = 0
        effect = caused.get(event.correlation)
        if effect is not None:
            stream = effect.stream
            if kind in _COPIES or kind is CallKind.MEMSET:
                size = effect.bytes
                kind = _COPY_CALLS.get(activity_kind(effect.category, effect.name), kind)
                waits = waits or pageable(effect.name)
        blocked = event.end - event.begin if waits else 0
        rows.append((event.begin, event.end, blocked, size, event.correlation, event.tid, kind, name, -1, stream))
    fields = ("begin", "end", "blocked", "bytes", "correlation", "tid", "kind", "name", "site", "stream")
    return _table("calls", fields, rows, loaded=loaded)


def regions(trace: Trace, name_of: NameOf) -> Table:
    """Annotations except steps, the outermost operators of each thread, fills of new memory, and calls of Python
    functions."""
    marked = (event for event in trace.annotations if not event.name.startswith(STEP_PREFIX))
    selected = [(event, region_name(event.name)) for event in marked]
    selected += [(event, OPERATOR_REGION + event.name) for event in outermost(trace.operators)]
    selected += [(event, MEMORY_FILL) for event in _fills(trace.operators)]
    selected += [(event, FRAME_REGION + event.name) for event in trace.frames]
    selected.sort(key=lambda pair: (pair[0].tid, pair[0].begin, -pair[0].end))
    rows = []
    open_ends: list[int] = []
    tid = None
    for event, text in selected:
        if event.tid != tid:
            tid = event.tid
            open_ends.clear()
        while open_ends and open_ends[-1] <= event.begin:
            open_ends.pop()
        rows.append((event.begin, event.end, event.tid, name_of(text), len(open_ends)))
        open_ends.append(event.end)
    return _table("regions", ("begin", "end", "tid", "name", "depth"), rows, loaded=True)


def outermost(events: Iterable[OnHost]) -> list[OnHost]:
    """Events that begin within no other event of their thread."""
    selected: list[OnHost] = []
    for event in sorted(events, key=lambda event: (event.tid, event.begin, -event.end)):
        last = selected[-1] if selected else None
        if last is None or last.tid != event.tid or event.begin >= last.end:
            selected.append(event)
    return selected


def _fills(operators: Sequence[OnHost]) -> list[OnHost]:
    """Return the operators that fill memory and that the operator which gets this memory calls."""
    if all(event.name != _FILL for event in operators):
        return []
    found, around = list[OnHost](), list[OnHost]()
    for event in sorted(operators, key=lambda event: (event.tid, event.begin, -event.end)):
        while around and (around[-1].tid != event.tid or around[-1].end <= event.begin):
            around.pop()
        if event.name == _FILL and around and _GETS_MEMORY.search(around[-1].name):
            found.append(event)
        around.append(event)
    return found


def steps(trace: Trace) -> tuple[Table, StepDefinition]:
    """Return the steps that torch's profiler annotated, or the whole trace as one; and what they are."""
    fields = ("index", "begin", "end", "tid")
    marked = sorted(event for event in trace.annotations if event.name.startswith(STEP_PREFIX))
    if marked:
        rows = [(number, event.begin, event.end, event.tid) for number, event in enumerate(marked)]
        return _table("steps", fields, rows, loaded=True), StepDefinition(StepKind.ANNOTATION)
    events: list[OnHost | OnDevice] = [
        *trace.operators, *trace.annotations, *trace.runtime, *trace.frames, *trace.device
    ]  # fmt: skip
    begin, end = min(event.begin for event in events), max(event.end for event in events)
    rows = [(0, begin, _end_of_work(trace, end), main_thread(trace))]
    return _table("steps", fields, rows, loaded=True), StepDefinition(StepKind.WHOLE_TRACE)


def main_thread(trace: Trace) -> int:
    """Return the thread that runs the training loop: the one with torch's own annotations, which are made in Python,
    else with the operators of the forward pass, else the process's first thread, else the one with most events.

    Autograd's thread often has more events than any other.
    """
    named = Counter(event.tid for event in trace.annotations if event.name.startswith(ANNOTATION_PREFIXES))
    counts = Counter(event.tid for event in (*trace.operators, *trace.annotations, *trace.runtime))
    forward = trace.forward
    return max(
        counts, key=lambda tid: (named[tid] > 0, forward[tid] > 0, tid == trace.pid, counts[tid]), default=trace.pid
    )


def _end_of_work(trace: Trace, end: int) -> int:
    """Return when torch's profiler began to wait for the device in order to stop; `end` if it did not."""
    last = max(trace.runtime, default=None)
    if last is None or call_kind(last.name) is not CallKind.SYNC or "DeviceSynchronize" not in last.name:
        return end
    others = max((event.end for event in (*trace.operators, *trace.annotations)), default=0)
    return max(last.begin, others, max((event.end for event in trace.device), default=0))


def _table(name: str, fields: Sequence[str], rows: Sequence[tuple[Any, ...]], *, loaded: bool) -> Table:
    columns = np.array(rows, np.int64).reshape(len(rows), len(fields)).T
    return filled(name, len(rows), loaded=loaded, **dict(zip(fields, columns, strict=True)))


def counters(calls: Table, steps: Table, names: Mapping[str, int], name_of: NameOf) -> Table:
    """Count syncs, copies, bytes, launches and allocations from the calls: one value per counter and step.

    A sync is a call that waits until the device is done. torch adds a sync of the stream to each pageable copy: only
    that sync counts. Calls outside of all steps count nowhere.
    """
    order = np.argsort(steps["begin"], kind="stable")
    begin, end = steps["begin"][order].astype(np.int64), steps["end"][order].astype(np.int64)
    at = np.searchsorted(begin, calls["begin"].astype(np.int64), "right") - 1
    inside = (at >= 0) & (calls["begin"] < end[np.maximum(at, 0)])
    kind, one = calls["kind"], np.ones(len(calls))
    waits = np.isin(calls["name"], [number for text, number in names.items() if waits_by_itself(text)])
    amounts = {
        "syncs": (waits, one),
        "h2d": (kind == CallKind.H2D, one),
        "d2h": (kind == CallKind.D2H, one),
        "launches": (kind == CallKind.LAUNCH, one),
        "allocations": (kind == CallKind.ALLOC, one),
        "h2d_bytes": (kind == CallKind.H2D, calls["bytes"]),
        "d2h_bytes": (kind == CallKind.D2H, calls["bytes"]),
    }
    parts = []
    for name, (counted, amount) in amounts.items():
        rows = inside & counted
        value = np.bincount(at[rows], amount[rows], minlength=len(steps))
        parts.append(
            filled(
                "values", len(steps), loaded=True, time=end, step=steps["index"][order], value=value,
                name=name_of(name), kind=ValueKind.COUNTER,
            )
        )  # fmt: skip
    return np.concatenate(parts)
