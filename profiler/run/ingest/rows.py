"""The sorted events of a Kineto trace as rows of our tables: calls, activities, regions, steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profiler.run.ingest import words
from profiler.run.ingest.events import OnHost, Trace
from profiler.run.model import Table
from profiler.run.source import dtype_of
from profiler.run.tables import ActivityKind, CallKind

NameOf = Callable[[str], int]
_COPY_CALLS: Final = {
    ActivityKind.H2D: CallKind.H2D,
    ActivityKind.D2H: CallKind.D2H,
    ActivityKind.D2D: CallKind.D2D,
}
_COPIES: Final = frozenset(_COPY_CALLS.values())


def filled(table: str, count: int, *, loaded: bool, **columns: npt.ArrayLike) -> Table:
    """`count` rows of `table` with these columns; the others are 0."""
    rows = np.zeros(count, dtype_of(table, loaded=loaded))
    for name, values in columns.items():
        rows[name] = values
    return rows


def activities(trace: Trace, name_of: NameOf, *, loaded: bool) -> Table:
    """All that devices did, those kernels included that no call of the trace launched (CUDA graphs)."""
    kinds: dict[tuple[str, str], tuple[int, int]] = {}
    rows = []
    for event in trace.device:
        key = event.category, event.name
        if key not in kinds:
            kinds[key] = int(words.activity_kind(*key)), name_of(event.name)
        rows.append((event.begin, event.end, event.bytes, event.correlation, *kinds[key], event.stream, event.device))
    fields = ("begin", "end", "bytes", "correlation", "kind", "name", "stream", "device")
    return _table("activities", fields, rows, loaded=loaded)


def calls(trace: Trace, name_of: NameOf, *, loaded: bool) -> Table:
    """What the host asked of devices; the direction, bytes and stream of a copy are its activity's.

    Blocked are: synchronising calls, copies that return when the device is done, and copies from or to pageable
    memory, which wait although they are called Async; each from its begin to its end.
    """
    kinds: dict[str, tuple[CallKind, bool, int]] = {}
    caused = {event.correlation: event for event in trace.device if event.correlation}
    rows = []
    for event in trace.runtime:
        if event.name not in kinds:
            kind, waits = words.call_kind(event.name), words.waits_by_itself(event.name)
            kinds[event.name] = kind, waits, name_of(event.name)
        kind, waits, name = kinds[event.name]
        size = stream = 0
        effect = caused.get(event.correlation)
        if effect is not None:
            stream = effect.stream
            if kind in _COPIES or kind is CallKind.MEMSET:
                size = effect.bytes
                kind = _COPY_CALLS.get(words.activity_kind(effect.category, effect.name), kind)
                waits = waits or words.pageable(effect.name)
        blocked = event.end - event.begin if waits else 0
        rows.append((event.begin, event.end, blocked, size, event.correlation, event.tid, kind, name, -1, stream))
    fields = ("begin", "end", "blocked", "bytes", "correlation", "tid", "kind", "name", "site", "stream")
    return _table("calls", fields, rows, loaded=loaded)


def regions(trace: Trace, name_of: NameOf) -> Table:
    """Annotations, steps left out, and of the operators the outermost of each thread."""
    marked = (event for event in trace.annotations if not event.name.startswith(words.STEP))
    kept = [(event, words.region_name(event.name)) for event in marked]
    kept += [(event, words.OPERATOR_REGION + event.name) for event in outermost(trace.operators)]
    kept.sort(key=lambda pair: (pair[0].tid, pair[0].begin, -pair[0].end))
    rows = []
    open_ends: list[int] = []
    tid = None
    for event, text in kept:
        if event.tid != tid:
            tid = event.tid
            open_ends.clear()
        while open_ends and open_ends[-1] <= event.begin:
            open_ends.pop()
        rows.append((event.begin, event.end, event.tid, name_of(text), len(open_ends)))
        open_ends.append(event.end)
    return _table("regions", ("begin", "end", "tid", "name", "depth"), rows, loaded=True)


def outermost(events: Iterable[OnHost]) -> list[OnHost]:
    """Those that begin in no other of their thread."""
    kept: list[OnHost] = []
    for event in sorted(events, key=lambda event: (event.tid, event.begin, -event.end)):
        last = kept[-1] if kept else None
        if last is None or last.tid != event.tid or event.begin >= last.end:
            kept.append(event)
    return kept


def steps(trace: Trace) -> tuple[Table, str]:
    """The steps that torch's profiler annotated, or the whole trace as one; and what they are in words."""
    marked = sorted(event for event in trace.annotations if event.name.startswith(words.STEP))
    if marked:
        rows = [(number, event.begin, event.end, event.tid) for number, event in enumerate(marked)]
        return _table("steps", ("index", "begin", "end", "tid"), rows, loaded=True), "ProfilerStep annotations"
    host = [*trace.operators, *trace.annotations, *trace.runtime]
    spans = [(event.begin, event.end) for event in host] + [(event.begin, event.end) for event in trace.device]
    begin, end = min(span[0] for span in spans), _end_of_work(trace, max(span[1] for span in spans))
    threads = Counter(event.tid for event in host)
    tid = threads.most_common(1)[0][0] if threads else 0
    rows = [(0, begin, end, tid)]
    why = "the whole trace as one step: it has no ProfilerStep annotations"
    return _table("steps", ("index", "begin", "end", "tid"), rows, loaded=True), why


def _end_of_work(trace: Trace, end: int) -> int:
    """Where torch's profiler began to wait for the device so as to stop; `end` where it did not."""
    last = max(trace.runtime, default=None)
    if last is None or words.call_kind(last.name) is not CallKind.SYNC or "DeviceSynchronize" not in last.name:
        return end
    others = max((event.end for event in (*trace.operators, *trace.annotations)), default=0)
    return max(last.begin, others, max((event.end for event in trace.device), default=0))


def _table(name: str, fields: Sequence[str], rows: Sequence[tuple[Any, ...]], *, loaded: bool) -> Table:
    columns = np.array(rows, np.int64).reshape(len(rows), len(fields)).T
    return filled(name, len(rows), loaded=loaded, **dict(zip(fields, columns, strict=True)))
