"""Tells what the host was doing at every moment: its innermost region, call or wait, and the category.

In a recorded run this is the stepping thread. A trace of torch's profiler has the events of all threads. Those of the
stepping thread come first. Where that thread waits for autograd's thread, or has no event, another thread that gives
work to the device decides: the backward pass is launched there. What runs inside of a loader, of the preparation of
input, of logging or of writing a checkpoint counts as that, also operators and launches; operators are not told apart
there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import (
    Indices,
    Segments,
    Times,
    complement,
    covered_within,
    innermost,
    intersect,
    overlaps,
    subtract,
    times,
    union,
)
from profiler.analyse.model.measures import HOST_CATEGORIES
from profiler.analyse.sampling.frames import library_category
from profiler.analyse.window import Window, device_kind, is_collective, named_rows, process_rows, thread_rows
from profiler.run.code_origin import COMPILED_FOLDER
from profiler.run.model import Run, Site, Table
from profiler.run.tables import MEMORY_FILL, CallKind

REGION, CALL, BLOCKED = range(3)
_CALL_RANK = 1 << 20
"""A call is inside a region of the same extent; regions rank by their depth, which is far below this."""

FSYNC: Final = "fsync"
"""The region of a wait until a file is on the disk; within a checkpoint it is a part of writing that."""
REGION_CATEGORIES: Final[Mapping[str, str]] = {
    "tokenize": "input",
    "data": "input",
    "input": "input",
    "loader": "input",
    "loader start": "input",
    "worker start": "input",
    "dataset": "input",
    "dataset map": "input",
    "collate": "input",
    "pin memory": "input",
    "receive": "input",
    "log": "log",
    "logging": "log",
    "checkpoint": "checkpoint",
    "save": "checkpoint",
    FSYNC: "waiting",
    "h2d": "copy",
    "d2h": "copy",
    "copy": "copy",
    "sync": "sync",
    "workers": "sync",
}
"""Name of a region (case ignored) -> host category. Any other name is `python`: a region shows that host Python of that
name ran. What runs inside a region keeps its category, since the innermost wins."""

RECORDING: Final = "recording"
"""The region in which `Recorder.record_overhead` records the time that recording itself took; category `python`."""

CALL_CATEGORIES: Final[Mapping[CallKind, str]] = {
    CallKind.SYNC: "sync",
    CallKind.H2D: "copy",
    CallKind.D2H: "copy",
    CallKind.D2D: "copy",
    CallKind.MEMSET: "copy",
    CallKind.LAUNCH: "launch",
    CallKind.ALLOC: "launch",
    CallKind.FREE: "launch",
    CallKind.EVENT: "launch",
    CallKind.OTHER: "launch",
    CallKind.WOULD_SYNC: "compute",
    CallKind.MIGHT_SYNC: "compute",
}
"""Kind of a runtime call -> host category of the time in which it did not block; where it blocked, it is `sync`."""

SUBMITTING: Final = (CallKind.LAUNCH, CallKind.H2D, CallKind.D2H, CallKind.D2D, CallKind.MEMSET)
"""Calls that put work on a device's queue: what ends a device's idleness."""

CODE: Final[Mapping[str, int]] = {name: number for number, name in enumerate(HOST_CATEGORIES)}
"""Host category -> its number, the column of it in a ledger."""

OPERATOR: Final = "operator "
"""Prefix of regions that are torch operators of a foreign trace: framework time, and on a CPU the work itself."""


def region_category(name: str, device: str = "") -> str:
    """Return the host category of a region of this name; `device` is what the program states that it runs on."""
    if name.startswith(OPERATOR):
        return "compute" if device == "cpu" else "framework"
    return REGION_CATEGORIES.get(name.strip().lower(), "python")


@dataclass(frozen=True, eq=False, slots=True)
class HostTimeline:
    """Exclusive segments of the stepping thread, over the whole run; what lies between them is uncovered."""

    regions: Table
    calls: Table
    call_begin: Times
    """The begin of each of `calls`, in the order in which they were recorded."""
    segments: Segments
    source: Indices
    """REGION, CALL or BLOCKED (the part of a call in which the host was blocked) for each segment."""
    record: Indices
    """The row in `regions` or `calls` for each segment."""
    category: Indices
    """The number of the host category (CODE) of each segment."""
    site: Indices | None = None
    """The number of the site of each segment in a foreign trace, or -1; None where only calls have sites."""
    yields: npt.NDArray[np.bool_] | None = None
    """Whether each segment of a foreign trace may be a wait for another thread."""


def host_timeline(run: Run, window: Window) -> HostTimeline:
    """Attribute the stepping thread's time to its innermost region, call or blocked part of a call.

    A call that would wait if its tensor were on a GPU does its work here: some make a list under the GIL, some compute.
    So it covers nothing, and samples say which.
    """
    return thread_timeline(run, thread_rows(run.regions, window), thread_rows(run.calls, window))


def thread_timeline(run: Run, regions: Table, calls: Table) -> HostTimeline:
    """Attribute the time of the thread that these regions and calls are of."""
    calls = calls[calls["kind"] != CallKind.MIGHT_SYNC]
    begin, end = times(calls["begin"]), times(calls["end"])
    blocked = np.clip(times(calls["blocked"]), 0, end - begin)
    waits = np.flatnonzero(blocked)
    depth = np.concatenate([times(regions["depth"]), np.zeros(len(calls) + len(waits), np.int64)])
    record = np.concatenate([np.arange(len(regions)), np.arange(len(calls)), waits])
    source = np.repeat([REGION, CALL, BLOCKED], [len(regions), len(calls), len(waits)])
    segments = innermost(
        np.concatenate([times(regions["begin"]), begin, (end - blocked)[waits]]),
        np.concatenate([times(regions["end"]), end, end[waits]]),
        np.where(source == REGION, 0, _CALL_RANK + source) + depth,
    )
    by_name = np.array([CODE[region_category(name, device_kind(run))] for name in run.names] or [0], np.int64)
    by_kind = np.array([CODE[CALL_CATEGORIES[kind]] for kind in CallKind], np.int64)[calls["kind"]]
    if device_kind(run) != "cuda":  # there a collective only queues its work
        by_kind[is_collective(run, calls)] = CODE["ranks"]
    by_region = by_name[regions["name"]]
    by_region[_is_sync_of_checkpoint(run, regions, by_region)] = CODE["checkpoint"]
    category = np.concatenate([by_region, by_kind, np.full(len(waits), CODE["sync"], np.int64)])
    owner = segments.owner
    return HostTimeline(regions, calls, begin, segments, source[owner], record[owner], times(category)[owner])


def _is_sync_of_checkpoint(run: Run, regions: Table, category: Indices) -> npt.NDArray[np.bool_]:
    """Return which regions are waits for the disk within a region of a checkpoint, such as torch.distributed's own."""
    begin, end = times(regions["begin"]), times(regions["end"])
    is_sync = np.array([name == FSYNC for name in run.names] or [False])[regions["name"]]
    checkpoint = category == CODE["checkpoint"]
    within = covered_within(union(begin[checkpoint], end[checkpoint]), begin, end)
    return np.asarray(is_sync & (end > begin) & (within == end - begin))


# ---------------------------------------------------------------- traces of torch's profiler

FRAME: Final = "frame "
"""Prefix of regions that are calls of Python functions in a foreign trace: `frame train.py(12): main`."""
_CONTEXTS: Final = tuple(CODE[name] for name in ("input", "log", "checkpoint"))
"""Categories of a region that also apply to what runs inside of it, unless the host is blocked on the device there."""
_ENGINE: Final = ("_engine_run_backward", "backward", "grad")
"""Functions of torch/autograd in which the stepping thread waits for autograd's thread."""
_TORCH_ANNOTATIONS: Final = ("optimizer", "Optimizer.", "## Call CompiledFxGraph", "nccl:", "TorchDynamo", "PyTorchDDP")
"""Annotations that torch makes around its own Python."""
_TORCH_FILES: Final = ("torch/", "triton/")
_WAITING_FILES: Final = ("threading.py", "queue.py", "selectors.py", "concurrent/futures/_base.py")
_WAITING_FUNCTIONS: Final = ("wait", "join", "get", "select", "acquire", "result", "_wait_for_tstate_lock")

_Value = TypeVar("_Value", np.bool_, np.int64)


def full_timeline(run: Run, window: Window) -> HostTimeline:
    """Return what the host was doing: in a recorded run its stepping thread, in a trace all threads that drive the
    device."""
    if not run.is_trace:
        return host_timeline(run, window)
    regions, calls = process_rows(run.regions, window), process_rows(run.calls, window)
    merged = None
    for tid in [window.tid, *_driving_threads(run, regions, calls, window.tid)]:
        timeline = _trace_thread(run, regions[regions["tid"] == tid], calls[calls["tid"] == tid])
        merged = timeline if merged is None else _filled(merged, timeline)
    assert merged is not None
    return merged


def _driving_threads(run: Run, regions: Table, calls: Table, stepping: int) -> Sequence[int]:
    """Return the other threads that submit work, those with most calls first; on a CPU those with operators."""
    if device_kind(run) == "cpu":
        rows = regions[is_operator(run, regions)]
    else:
        rows = calls[np.isin(calls["kind"], SUBMITTING)]
    tids, counts = np.unique(rows["tid"], return_counts=True)
    return [tid for _, tid in sorted(zip((-counts).tolist(), tids.tolist(), strict=True)) if tid != stepping]


def _trace_thread(run: Run, regions: Table, calls: Table) -> HostTimeline:
    """Return the timeline of one thread, with the categories of its Python frames and with sites."""
    own = thread_timeline(run, regions, calls)
    sites = {site: number for number, site in enumerate(run.sites)}
    by_name = [_name_category(name) or region_category(name, device_kind(run)) for name in run.names]
    site_by_name = np.array([_site_number(name, sites) for name in run.names] or [-1], np.int64)
    code_by_name = np.array([CODE[category] for category in by_name] or [0], np.int64)
    is_region = own.source == REGION
    names = _column(regions, "name")
    category = own.category.copy()
    category[is_region] = code_by_name[names[own.record[is_region]]]
    begin = own.segments.begin
    rows = np.arange(len(regions))
    context = _innermost_value(regions, rows, np.isin(code_by_name[names], _CONTEXTS), begin)
    inside = (context >= 0) & (category != CODE["sync"])
    category[inside] = code_by_name[names[context[inside]]]
    record = own.record.copy()
    operators = inside & is_region
    operators[operators] = is_operator(run, regions)[record[operators]]
    record[operators] = context[operators]
    site = _innermost_value(regions, site_by_name[names], site_by_name[names] >= 0, begin)
    return replace(own, category=category, record=record, site=site, yields=_yields(run, own, regions))


def is_operator(run: Run, regions: Table) -> npt.NDArray[np.bool_]:
    """Return which of these regions are torch operators of a foreign trace."""
    by_name = np.array([name.startswith(OPERATOR) for name in run.names] or [False])
    return np.asarray(by_name[regions["name"]])


def memory_fills(run: Run, window: Window) -> tuple[float, float]:
    """Return the seconds per step in which a device only fills new memory, on a CPU the stepping thread, and fills per
    step."""
    regions = named_rows(run, process_rows(run.regions, window), MEMORY_FILL)
    regions = regions[window.step_rows(regions["begin"]) >= 0] if len(window) else regions[:0]
    if not len(regions):
        return 0.0, 0.0
    count = len(regions) / len(window)
    if device_kind(run) == "cpu":
        regions = regions[regions["tid"] == window.tid]
        return window.per_step(intersect(union(regions["begin"], regions["end"]), window.spans).measure()), count
    calls, activities = process_rows(run.calls, window), process_rows(run.activities, window)
    launched = set[int]()
    for tid in np.unique(regions["tid"]).tolist():
        within = overlaps(
            calls["begin"], calls["end"], union(*(regions[regions["tid"] == tid][end] for end in ("begin", "end")))
        ).left
        launched.update(calls["correlation"][within[calls["tid"][within] == tid]].tolist())
    is_fill = np.isin(activities["correlation"], sorted(launched - {0}))
    fills, others = (union(rows["begin"], rows["end"]) for rows in (activities[is_fill], activities[~is_fill]))
    return window.per_step(intersect(subtract(fills, others), window.spans).measure()), count


def _site_number(name: str, sites: Mapping[Site, int]) -> int:
    site = _frame(name)
    return -1 if site is None else sites.get(site, -1)


def _frame(name: str) -> Site | None:
    if not name.startswith(FRAME):
        return None
    file, _, rest = name.removeprefix(FRAME).rpartition(".py(")
    line, _, function = rest.partition("): ")
    return Site(f"{file}.py", int(line), function) if line.isdecimal() else None


def _name_category(name: str) -> str:
    """Return the category of a frame or of an annotation of torch's own; empty: none."""
    if name.startswith(_TORCH_ANNOTATIONS):
        return "framework"
    site = _frame(name)
    if site is None:
        return ""
    if category := library_category(site.file, site.function):
        return category
    if site.file in _WAITING_FILES and site.function in _WAITING_FUNCTIONS:
        return "waiting"
    return "framework" if site.file.startswith(_TORCH_FILES) or COMPILED_FOLDER in site.file else "python"


def _yields(run: Run, own: HostTimeline, regions: Table) -> npt.NDArray[np.bool_]:
    """Return which segments of a thread may be a wait for another one: it is in autograd's engine, or nothing but an
    annotation of a stretch tells what it did."""
    has_frames = any(name.startswith(FRAME) for name in run.names)

    def may_wait(name: str) -> bool:
        site = _frame(name)
        if site is not None:
            return site.file.startswith("torch/autograd/") and site.function in _ENGINE
        return not has_frames and not name.startswith(OPERATOR)

    by_name = np.array([may_wait(name) for name in run.names] or [False])
    is_region = own.source == REGION
    yields = np.zeros(len(own.source), np.bool_)
    yields[is_region] = by_name[_column(regions, "name")[own.record[is_region]]]
    return np.asarray(yields & ~np.isin(own.category, _CONTEXTS))


def _innermost_value(regions: Table, values: Indices, chosen: npt.NDArray[np.bool_], moments: Times) -> Indices:
    """For each moment, the value of the innermost chosen region around it; -1: none."""
    rows = regions[chosen]
    segments = innermost(rows["begin"], rows["end"], rows["depth"])
    if not len(segments.begin):
        return np.full(len(moments), -1, np.int64)
    at = np.maximum(np.searchsorted(segments.begin, moments, "right") - 1, 0)
    inside = (segments.begin[at] <= moments) & (moments < segments.end[at])
    return np.where(inside, values[chosen][segments.owner[at]], -1)


def _filled(own: HostTimeline, other: HostTimeline) -> HostTimeline:
    """Return `own`, with the events of another thread where it has none or may wait for that thread."""
    assert own.yields is not None
    assert other.yields is not None
    assert own.site is not None
    assert other.site is not None
    firm, busy = ~own.yields, ~other.yields
    own_begin, own_end = own.segments.begin, own.segments.end
    low = int(min([*own_begin[:1], *other.segments.begin[:1]], default=0))
    high = int(max([*own_end[-1:], *other.segments.end[-1:]], default=0))
    free = complement(union(own_begin[firm], own_end[firm]), low, high)
    added = overlaps(other.segments.begin[busy], other.segments.end[busy], free)
    left = overlaps(own_begin, own_end, complement(union(added.begin, added.end), low, high))
    from_own, from_other = left.left, np.flatnonzero(busy)[added.left]
    begin, end = np.concatenate([left.begin, added.begin]), np.concatenate([left.end, added.end])
    order = np.argsort(begin, kind="stable")

    def both(mine: npt.NDArray[_Value], theirs: npt.NDArray[_Value]) -> npt.NDArray[_Value]:
        return np.concatenate([mine[from_own], theirs[from_other]])[order]

    record = other.record + np.where(other.source == REGION, len(own.regions), len(own.calls))
    return HostTimeline(
        regions=np.concatenate([own.regions, other.regions]),
        calls=np.concatenate([own.calls, other.calls]),
        call_begin=np.concatenate([own.call_begin, other.call_begin]),
        segments=Segments(begin[order], end[order], order, own.segments.crossings + other.segments.crossings),
        source=both(own.source, other.source),
        record=both(own.record, record),
        category=both(own.category, other.category),
        site=both(own.site, other.site),
        yields=both(own.yields, other.yields),
    )


def _column(table: Table, name: str) -> Indices:
    return times(table[name])
