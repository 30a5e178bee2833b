"""Tells what the input's time is made of: in the workers that make batches, and in the process that trains on them.

Workers' seconds are summed over them and given per step of the training process; their share is of the time in which
they existed. Parts of the training process are shares of its wall time. Only time within the measured steps counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from profiler.analyse.intervals import (
    Intervals,
    Times,
    covered_within,
    innermost,
    intersect,
    overlaps,
    subtract,
    times,
    union,
)
from profiler.analyse.model.input import (
    BETWEEN_BATCHES,
    MARKED_DATA,
    RECEIVE,
    THE_LOADER,
    WAITING_FOR_INDEX,
    WAITING_FOR_WORKERS,
    InputPart,
    LoaderSettings,
    LoaderUse,
)
from profiler.analyse.model.measures import MIN_SAMPLES, Measure
from profiler.analyse.timing.host_timeline import is_operator
from profiler.analyse.timing.resources import free_cores
from profiler.analyse.timing.scheduler import thread_time
from profiler.analyse.window import NS_PER_S, Window, has_name, named_rows, process_rows, select, thread_rows
from profiler.core.metrics import BLOCKED_IN, BlockedIn
from profiler.run.filter import group_rows
from profiler.run.model import Run, Site, StepKind, Table
from profiler.run.tables import WORKER_OF, BoundaryKind, CallKind

_WORKER_REGIONS: Final = ("worker start", WAITING_FOR_INDEX)
_MAIN_REGIONS: Final = ("data", "loader start", "dataset", "dataset map", "collate", "tokenize", "pin memory", RECEIVE)
CPU_S: Final = "process.cpu_s"
WAIT_S: Final = "thread.wait_s"
"""Names of cumulative samples: CPU time of a process, and time in which a thread waited for a core."""
_MIN_SHARE: Final = 0.001
"""Share of wall time below which a part is left out."""

_Context = Literal["loader", "inline", "own thread"]
_Part = tuple[str, int, _Context]
"""Name of a part, its site, and its context."""


def input_parts(run: Run, window: Window) -> tuple[InputPart, ...]:
    """Return the parts of the input's time, the most seconds first; none without a loader, worker or tokenizer."""
    if not len(window):
        return ()
    workers, sites = _workers(run, window), _RegionSites(run)
    parts = [
        *_parts(run, window, "worker", *_worker_sums(run, window, workers, sites)),
        *_parts(run, window, "main process", _main_sums(run, window, sites, bool(workers)), window.wall_ns),
    ]
    return tuple(sorted(parts, key=lambda part: (-part.seconds_per_step, part.name, part.context, str(part.site))))


def input_measures(run: Run, window: Window) -> dict[str, Measure]:
    """Return `loader_workers`, how many there were at the same time; nothing where there were none."""
    workers = _workers(run, window)
    if not workers:
        return {}
    begin, end = (np.sort([getattr(worker, name) for worker in workers]) for name in ("begin", "end"))
    running = np.arange(1, len(begin) + 1) - np.searchsorted(end, begin, "right")  # at each start
    count = float(running.max())
    return {"loader_workers": Measure("loader_workers", count, "1", n=len(workers), source="regions")}


def loader_use(run: Run, window: Window) -> LoaderUse | None:
    """Return how the stepping thread uses its loaders; None where it has none."""
    if not len(window):
        return None
    regions = thread_rows(run.regions, window)
    batches, starts = (
        int((window.step_rows(named_rows(run, regions, name)["begin"]) >= 0).sum()) / len(window)
        for name in ("data", "loader start")
    )
    if not (batches or starts) or not _has_loader(run, window):
        return None
    workers = _workers(run, window)
    measure = input_measures(run, window).get("loader_workers")
    count = round(measure.value) if measure and measure.value else 0
    cpu, core_wait = (_mean_rate(run, window, workers, name) for name in (CPU_S, WAIT_S))
    threads = [(int(worker.rows["pid"][0]), worker.tid) for worker in workers] or [(window.pid, window.tid)]
    file_wait, socket_wait = making_waits(run, window, threads) or (None, None)
    return LoaderUse(
        batches, starts, count, cpu, core_wait, _busiest(run, window, workers), file_wait, socket_wait,
        free_cores(run, window), _loaders(run, window), _waits_around_starts(run, window, count), len(workers),
    )  # fmt: skip


def _busiest(run: Run, window: Window, workers: Iterable[_Worker]) -> float:
    """Return the share of its time that the busiest worker of most steps makes batches. It is 0 for a loader that does
    not keep the order of its batches: such a loader waits for no single worker."""
    facts = run.info.facts.get("loaders")
    if isinstance(facts, Mapping) and not all(fact.get("in_order", True) for fact in facts.values()):
        return 0.0
    busy = []
    for worker in workers:
        existing = worker.overlap(window.spans)
        if 2 * existing >= window.wall_ns:
            waits = named_rows(run, worker.rows, WAITING_FOR_INDEX)
            idle = covered_within(window.spans, *(waits[waits["tid"] == worker.tid][end] for end in ("begin", "end")))
            busy.append(1.0 - float(idle.sum()) / existing)
    return max(busy, default=0.0)


def _waits_around_starts(run: Run, window: Window, workers: int) -> float:
    """Return the seconds per step of the first request for a batch of each worker after each start of a loader, and of
    the last request of each epoch, in which the loader ends workers that it does not keep."""
    regions, boundaries = thread_rows(run.regions, window), thread_rows(run.boundaries, window)
    asked = np.sort(boundaries["time"][(boundaries["kind"] == BoundaryKind.LOADER) & (boundaries["flag"] == 1)])
    requests = named_rows(run, regions, "data")
    requests = requests[np.argsort(requests["begin"], kind="stable")]
    following = np.searchsorted(requests["begin"], asked)  # the boundary is recorded before the request begins
    last = requests[np.unique(following[following < len(requests)])]
    first_begin, first_end = first_requests(run, regions, workers)
    begin, end = np.append(first_begin, times(last["begin"])), np.append(first_end, times(last["end"]))
    begin, only = np.unique(begin, return_index=True)
    return window.per_step(int(covered_within(window.spans, begin, end[only]).sum()))


def first_requests(run: Run, regions: Table, number: int) -> tuple[Times, Times]:
    """Return the begin and end of the first requests for batches after each start of a loader.

    :param regions: those of the thread that steps.
    :param number: how many after each start.
    """
    starts, requests = (named_rows(run, regions, name) for name in ("loader start", "data"))
    begin, end = np.sort(times(requests["begin"])), np.sort(times(requests["end"]))
    following = np.searchsorted(begin, starts["end"])[:, None] + np.arange(number)
    first = np.unique(following[following < len(begin)])
    return begin[first], end[first]


def _loaders(run: Run, window: Window) -> tuple[LoaderSettings, ...]:
    """Return the settings of the loaders that hooks recorded, those in which the stepping thread is longest first."""
    facts = run.info.facts.get("loaders")
    if not isinstance(facts, Mapping):
        return ()
    times_by_name = _loader_times(run, window)
    if len(facts) == 1 and not times_by_name:  # a program that marks its steps has no boundaries
        times_by_name = dict.fromkeys(facts, 1)
    whole = sum(times_by_name.values()) or 1
    loaders = [
        LoaderSettings(
            name,
            Site.from_fact(fact),
            fact["variable"],
            fact["num_workers"] or 0,
            fact["batch_size"],
            fact["prefetch_factor"],
            bool(fact["pin_memory"]),
            bool(fact["persistent_workers"]),
            times_by_name.get(name, 0) / whole,
            bool(fact.get("iterable")),  # not in runs of earlier versions
            fact.get("made_anew"),
        )
        for name, fact in facts.items()
    ]
    return tuple(sorted(loaders, key=lambda loader: -loader.share))


def _loader_times(run: Run, window: Window) -> dict[str, int]:
    """Map the name of a loader to the ns in which the stepping thread is in it, by the boundaries at requests for
    batches: a wait belongs to the last request before it, a start of a loader to the first one after it."""
    boundaries = thread_rows(run.boundaries, window)
    requests = boundaries[boundaries["kind"] == BoundaryKind.LOADER]
    if not len(requests):
        return {}
    requests = requests[np.argsort(requests["time"], kind="stable")]
    rows = named_rows(run, thread_rows(run.regions, window), "data", "loader start")
    index = np.searchsorted(requests["time"], rows["begin"], "right") - 1 + has_name(run, rows, "loader start")
    is_known = (index >= 0) & (index < len(requests))
    sums = covered_within(window.spans, rows["begin"], rows["end"])
    totals = Counter[str]()
    for name, ns in zip(requests["name"][index[is_known]].tolist(), sums[is_known].tolist(), strict=True):
        totals[run.names[name]] += int(ns)
    return dict(totals)


def _mean_rate(run: Run, window: Window, workers: Iterable[_Worker], name: str) -> float | None:
    """Return the seconds per second by which a cumulative sample of the workers' fetching threads, or processes,
    grows."""
    rows = named_rows(run, run.samples, name)
    grown = passed = 0.0
    for worker in workers:
        mine = rows[(rows["pid"] == worker.rows["pid"][0]) & np.isin(rows["tid"], (0, worker.tid))]
        first, last = max(worker.begin, int(window.begin[0])), min(worker.end, int(window.end[-1]))
        mine = mine[(mine["time"] >= first) & (mine["time"] <= last)]
        if len(mine) > 1:
            grown += float(mine["value"][-1] - mine["value"][0])
            passed += float(mine["time"][-1] - mine["time"][0]) / NS_PER_S
    return grown / passed if passed else None


def _parts(
    run: Run, window: Window, where: Literal["worker", "main process"], sums: Mapping[_Part, int], wall_ns: int
) -> Iterable[InputPart]:
    for (name, number, context), ns in sums.items():
        if ns > _MIN_SHARE * wall_ns:
            site = run.sites[number] if number >= 0 else None
            yield InputPart(name, where, window.per_step(ns), ns / wall_ns, site, context)


# ---------------------------------------------------------------- workers


@dataclass(frozen=True, eq=False, slots=True)
class _Worker:
    """A process that works for the stepping one: its regions, its thread that fetches, and when it existed."""

    rows: Table
    tid: int
    begin: int
    end: int

    def overlap(self, spans: Intervals) -> int:
        """Return the ns of `spans` in which it existed."""
        return int(covered_within(spans, [self.begin], [self.end])[0])


def _workers(run: Run, window: Window) -> list[_Worker]:
    """Processes that work for the stepping process (of its rank) in the measured steps."""
    if not len(window):
        return []
    regions = run.regions
    is_fetching = has_name(run, regions, *_WORKER_REGIONS) & (regions["rank"] == int(window.steps["rank"][0]))
    # ranks that one process started have workers that look alike
    records = named_rows(run, select(run.calls, run.calls["kind"] == CallKind.OTHER), WORKER_OF)
    stepping = np.setdiff1d(run.steps["pid"], [window.pid])
    pids = np.setdiff1d(
        regions["pid"][is_fetching], [window.pid, *set(records["pid"][np.isin(records["bytes"], stepping)].tolist())]
    )
    workers = []
    for rows in group_rows(select(regions, np.isin(regions["pid"], pids)), "pid"):
        tid = int(named_rows(run, rows, *_WORKER_REGIONS)["tid"][0])  # its queue has another thread
        worker = _Worker(rows, tid, int(rows["begin"].min()), int(rows["end"].max()))
        workers += [worker] if worker.overlap(window.spans) else []
    return workers


def _worker_sums(
    run: Run, window: Window, workers: Iterable[_Worker], sites: _RegionSites
) -> tuple[Mapping[_Part, int], int]:
    """Return the ns of each part, and ns in which the workers existed."""
    sums = Counter[_Part]()
    wall_ns, spans = 0, window.spans
    for worker in workers:
        existing = unrecorded = worker.overlap(spans)
        for rows in group_rows(worker.rows, "tid"):
            for (name, site), ns in _ExclusiveTimes(run, rows, sites).within(spans).items():
                sums[name, site, "loader"] += ns
                unrecorded -= ns if rows["tid"][0] == worker.tid else 0
        sums[BETWEEN_BATCHES, -1, "loader"] += max(0, unrecorded)
        wall_ns += existing
    return sums, wall_ns


# ---------------------------------------------------------------- the training process


def _main_sums(run: Run, window: Window, sites: _RegionSites, has_workers: bool) -> Mapping[_Part, int]:
    sums = Counter[_Part]()
    has_loader = _has_loader(run, window)
    marked_data = THE_LOADER if has_loader else MARKED_DATA
    regions = process_rows(run.regions, window)
    if run.is_trace:  # an operator that a loader runs is the loader's time
        regions = regions[~is_operator(run, regions)]
    for rows in group_rows(regions, "tid"):
        if not has_name(run, rows, *_MAIN_REGIONS).any():
            continue
        exclusive, stepping = _ExclusiveTimes(run, rows, sites), rows["tid"][0] == window.tid
        data = named_rows(run, rows, *(("data", "loader start") if has_loader else ()))
        loading = intersect(union(data["begin"], data["end"]), window.spans)
        contexts: tuple[tuple[_Context, Intervals, str], ...] = (
            ("loader", loading, THE_LOADER),
            ("inline", subtract(window.spans, loading), marked_data),
        )
        for context, spans, data_part in contexts:
            for (name, site), ns in exclusive.within(spans).items():
                if name in _MAIN_REGIONS:
                    part = (WAITING_FOR_WORKERS if has_workers else data_part) if name == "data" else name
                    sums[part, site, context if stepping else "own thread"] += ns
    return sums


def _has_loader(run: Run, window: Window) -> bool:
    """Return whether a region `data` is a loader's: not where a program marks its steps, and hooks saw no loader."""
    is_marked = run.step is not None and run.step.kind is StepKind.MARKED
    if not is_marked or "package" not in run.info.facts:
        return True
    return bool((process_rows(run.boundaries, window)["kind"] == BoundaryKind.LOADER).any())


# ---------------------------------------------------------------- regions of a thread


class _ExclusiveTimes:
    """The time of each region of one thread less the regions inside of it, by name and site."""

    def __init__(self, run: Run, rows: Table, sites: _RegionSites) -> None:
        self._run = run
        self._segments = innermost(rows["begin"], rows["end"], rows["depth"])
        keys = times(rows["name"]) * (len(run.sites) + 1) + sites.find(rows) + 1
        self._keys, group = np.unique(keys, return_inverse=True)
        self._group = group[self._segments.owner]

    def within(self, spans: Intervals) -> Mapping[tuple[str, int], int]:
        """Return the ns within `spans` by name and site (-1: unknown)."""
        cut = overlaps(self._segments.begin, self._segments.end, spans)
        sums = np.bincount(self._group[cut.left], cut.end - cut.begin, minlength=len(self._keys))
        regions = zip(self._keys.tolist(), sums.tolist(), strict=True)
        names, width = self._run.names, len(self._run.sites) + 1
        return {(names[key // width], key % width - 1): int(ns) for key, ns in regions if ns}


class _RegionSites:
    """The sites of regions: records of kind OTHER in which a thread names the site of its regions."""

    def __init__(self, run: Run) -> None:
        records = select(run.calls, run.calls["kind"] == CallKind.OTHER)
        self._threads = {
            (int(rows["pid"][0]), int(rows["tid"][0])): rows[np.argsort(rows["begin"], kind="stable")]
            for rows in group_rows(records, "pid", "tid")
        }

    def find(self, rows: Table) -> Times:
        """Return the site of each region of one thread: that of the last record of its name before it; -1: unknown."""
        sites = np.full(len(rows), -1, np.int64)
        records = self._threads.get((int(rows["pid"][0]), int(rows["tid"][0])))
        for same_name in group_rows(records, "name") if records is not None else ():
            regions = np.flatnonzero(rows["name"] == same_name["name"][0])
            last = np.searchsorted(same_name["begin"], rows["begin"][regions], "right") - 1
            sites[regions] = np.where(last >= 0, same_name["site"][np.maximum(last, 0)], -1)
        return sites


_MAKING: Final = ("dataset", "dataset map", "collate")


def making_waits(run: Run, window: Window, threads: Iterable[tuple[int, int]]) -> tuple[float, float] | None:
    """Return the shares of the time in which these threads (process and thread) make batches that they wait for files,
    and for sockets; None with too few samples. Time in which they wait for a core is not part of it: other programs
    would make it longer."""
    files = sockets = whole = 0.0
    count = 0
    samples, regions = named_rows(run, run.samples, BLOCKED_IN), named_rows(run, run.regions, *_MAKING)
    for pid, tid in threads:
        making = select(regions, (regions["pid"] == pid) & (regions["tid"] == tid))
        mine = samples[(samples["pid"] == pid) & (samples["tid"] == tid)]
        mine = mine[window.step_rows(mine["time"]) >= 0]
        at = mine["time"]
        inside = covered_within(union(making["begin"], making["end"]), at, at + 1) > 0
        values = mine["value"][inside].astype(np.int64)
        runnable = int((values == BlockedIn.NOTHING).sum())
        count += len(values)
        clocks = thread_time(run, pid, tid, window.spans)
        could_run = clocks.on_core + clocks.runnable if clocks else 0.0
        whole += len(values) - runnable * (clocks.runnable / could_run if clocks and could_run else 0.0)
        files += int((values == BlockedIn.FILE).sum())
        sockets += int((values == BlockedIn.SOCKET).sum())
    return (files / whole, sockets / whole) if count >= MIN_SAMPLES and whole else None
