"""What the input's time is made of: in the workers that make batches, and in the process that trains on them.

Workers' seconds are summed over them and told per step of the training process; their share is of the time in which
they were there. Parts of the training process are shares of its wall time. Only time within the measured steps counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from profiler.analyse.covers import HOOKS_WERE_IN
from profiler.analyse.model import (
    BETWEEN_BATCHES,
    MARKED_DATA,
    RECEIVE,
    THE_LOADER,
    WAITING_FOR_INDEX,
    WAITING_FOR_WORKERS,
    InputPart,
    Measure,
)
from profiler.analyse.timeline import Intervals, Times, complement, innermost, intersect, overlaps, times, union
from profiler.analyse.window import Window, of_process, select
from profiler.run.filter import group_rows
from profiler.run.model import Run, StepKind, Table
from profiler.run.tables import WORKER_OF, BoundaryKind, CallKind

_OF_WORKERS: Final = ("worker start", WAITING_FOR_INDEX)
_OF_MAIN: Final = ("data", "loader start", "dataset", "dataset map", "collate", "tokenize", "pin memory", RECEIVE)
_SMALL: Final = 0.001
"""Share of wall below which a part is left out."""

_Context = Literal["loader", "inline", "own thread"]
_Region = tuple[str, int]
"""Name of a region, and its site (-1: unknown)."""
_Key = tuple[str, int, _Context]
"""Name of a part, its site, and its context."""


def input_parts(run: Run, window: Window) -> tuple[InputPart, ...]:
    """Parts of the input's time, the most seconds first; empty where no loader, worker or tokenizer was seen."""
    if not len(window):
        return ()
    workers, said = _workers(run, window), _Said(run)
    found = [
        *_parts(run, window, "worker", *_of_workers(run, window, workers, said)),
        *_parts(run, window, "main process", _of_main(run, window, said, bool(workers)), window.wall_ns),
    ]
    return tuple(sorted(found, key=lambda part: (-part.seconds_per_step, part.name, part.context, str(part.site))))


def input_measures(run: Run, window: Window) -> dict[str, Measure]:
    """`loader_workers`: how many were there at once; nothing where none were seen."""
    workers = _workers(run, window)
    if not workers:
        return {}
    begin, end = (np.sort([getattr(worker, name) for worker in workers]) for name in ("begin", "end"))
    there = np.arange(1, len(begin) + 1) - np.searchsorted(end, begin, "right")  # at each start, less those that ended
    most = float(there.max())
    return {"loader_workers": Measure("loader_workers", most, "1", n=len(workers), source="regions")}


def _parts(
    run: Run, window: Window, where: Literal["worker", "main process"], sums: Mapping[_Key, int], wall_ns: int
) -> Iterable[InputPart]:
    for (name, number, context), ns in sums.items():
        if ns > _SMALL * wall_ns:
            site = run.sites[number] if number >= 0 else None
            yield InputPart(name, where, window.per_step(ns), ns / wall_ns, site, context)


# ---------------------------------------------------------------- workers


@dataclass(frozen=True, eq=False, slots=True)
class _Worker:
    """A process that worked for the stepping one: its regions, the thread of it that fetches, and when it was there."""

    rows: Table
    main: int
    begin: int
    end: int

    def there(self, spans: Intervals) -> int:
        """ns of `spans` in which it was there."""
        return intersect(union([self.begin], [self.end]), spans).measure()


def _workers(run: Run, window: Window) -> list[_Worker]:
    """Processes that worked for the stepping process (of its rank) in the measured steps."""
    numbers = [run.names.index(name) for name in _OF_WORKERS if name in run.names]
    if not numbers or not len(window):
        return []
    regions, spans = run.regions, window.spans
    of_workers = np.isin(regions["name"], numbers) & (regions["rank"] == int(window.steps["rank"][0]))
    pids = np.setdiff1d(regions["pid"][of_workers], [window.pid, *_of_others(run, window)])
    found = []
    for rows in group_rows(select(regions, np.isin(regions["pid"], pids)), "pid"):
        main = int(rows["tid"][np.isin(rows["name"], numbers)][0])  # its queue has a thread of its own
        worker = _Worker(rows, main, int(rows["begin"].min()), int(rows["end"].max()))
        found += [worker] if worker.there(spans) else []
    return found


def _of_others(run: Run, window: Window) -> set[int]:
    """Workers of other processes that step: ranks that one process started look alike otherwise."""
    stepping = set(np.unique(run.steps["pid"]).tolist()) - {window.pid}
    said = run.calls[_is_named(run, run.calls, (WORKER_OF,)) & (run.calls["kind"] == CallKind.OTHER)]
    return {int(row["pid"]) for row in said if int(row["bytes"]) in stepping}


def _of_workers(run: Run, window: Window, workers: Iterable[_Worker], said: _Said) -> tuple[Mapping[_Key, int], int]:
    """ns of each part, and ns in which the workers were there."""
    total: defaultdict[_Key, int] = defaultdict(int)
    wall_ns, spans = 0, window.spans
    for worker in workers:
        there = unseen = worker.there(spans)
        for rows in group_rows(worker.rows, "tid"):
            for key, ns in _OwnTimes(run, rows, said).within(spans).items():
                total[*key, "loader"] += ns
                unseen -= ns if rows["tid"][0] == worker.main else 0
        total[BETWEEN_BATCHES, -1, "loader"] += max(0, unseen)
        wall_ns += there
    return total, wall_ns


# ---------------------------------------------------------------- the training process


def _of_main(run: Run, window: Window, said: _Said, has_workers: bool) -> Mapping[_Key, int]:
    total: defaultdict[_Key, int] = defaultdict(int)
    spans, has_loader = window.spans, _has_loader(run, window)
    for rows in group_rows(of_process(run.regions, window), "tid"):
        if not _is_named(run, rows, _OF_MAIN).any():
            continue
        own, stepping = _OwnTimes(run, rows, said), rows["tid"][0] == window.tid
        data = select(rows, _is_named(run, rows, ("data", "loader start")))
        loader = intersect(union(data["begin"], data["end"]), spans if has_loader else union(*np.zeros((2, 0), int)))
        for key, ns in own.within(loader).items():
            total[_told(key, "loader" if stepping else "own thread", has_workers)] += ns
        for key, ns in own.within(_without(spans, loader)).items():
            total[_told(key, "inline" if stepping else "own thread", has_workers, has_loader=has_loader)] += ns
    return {key: ns for key, ns in total.items() if key[0]}


def _has_loader(run: Run, window: Window) -> bool:
    """Whether a region `data` is a loader's: not where a program marks its steps, and hooks saw it ask none."""
    if not (run.step and run.step.kind is StepKind.MARKED) or HOOKS_WERE_IN not in run.info.facts:
        return True
    return bool((of_process(run.boundaries, window)["kind"] == BoundaryKind.LOADER).any())


def _without(spans: Intervals, loader: Intervals) -> Intervals:
    if not len(loader.begin):
        return spans
    return intersect(spans, complement(loader, int(spans.begin[0]), int(spans.end[-1])))


def _told(key: _Region, context: _Context, has_workers: bool, *, has_loader: bool = True) -> _Key:
    """A region of the training process as a part; no name: not the input's."""
    name, site = key
    if name not in _OF_MAIN:
        return "", -1, context
    if name == "data":
        name = WAITING_FOR_WORKERS if has_workers else THE_LOADER if has_loader else MARKED_DATA
    return name, site, context


# ---------------------------------------------------------------- regions of a thread


class _OwnTimes:
    """The time of each region of one thread less the regions inside of it, by name and site."""

    def __init__(self, run: Run, rows: Table, said: _Said) -> None:
        self._run = run
        self._segments = innermost(rows["begin"], rows["end"], rows["depth"])
        pairs, group = np.unique(
            times(rows["name"]) * (len(run.sites) + 1) + _sites(rows, said) + 1, return_inverse=True
        )
        self._pairs: list[int] = pairs.tolist()
        self._group = group[self._segments.owner]

    def within(self, spans: Intervals) -> Mapping[_Region, int]:
        """ns within `spans`."""
        cut = overlaps(self._segments.begin, self._segments.end, spans)
        sums = np.bincount(self._group[cut.left], cut.end - cut.begin, minlength=len(self._pairs)).tolist()
        places = ((divmod(pair, len(self._run.sites) + 1), ns) for pair, ns in zip(self._pairs, sums, strict=True))
        return {(self._run.names[name], site - 1): int(ns) for (name, site), ns in places if ns}


class _Said:
    """Calls in which a thread says where its regions come from, found by thread."""

    def __init__(self, run: Run) -> None:
        said = select(run.calls, run.calls["kind"] == CallKind.OTHER)
        self._threads = {
            (int(rows["pid"][0]), int(rows["tid"][0])): rows[np.argsort(rows["begin"], kind="stable")]
            for rows in group_rows(said, "pid", "tid")
        }

    def of(self, rows: Table) -> Table | None:
        """Those of the thread of `rows`, by time."""
        return self._threads.get((int(rows["pid"][0]), int(rows["tid"][0])))


def _sites(rows: Table, known: _Said) -> Times:
    """Where each region comes from: the last call of its name before it says so, if any did."""
    found = np.full(len(rows), -1, np.int64)
    said = known.of(rows) if len(rows) else None
    if said is None:
        return found
    for name in np.unique(said["name"]).tolist():
        of_name = said[said["name"] == name]
        regions = np.flatnonzero(rows["name"] == name)
        last = np.searchsorted(of_name["begin"], rows["begin"][regions], "right") - 1
        found[regions] = np.where(last >= 0, of_name["site"][np.maximum(last, 0)], -1)
    return found


def _is_named(run: Run, rows: Table, names: Iterable[str]) -> np.typing.NDArray[np.bool_]:
    wanted = set(names)
    return np.isin(rows["name"], [number for number, name in enumerate(run.names) if name in wanted])
