"""What the input's time is made of: in the workers that make batches, and in the process that trains on them.

Workers' seconds are summed over them and told per step of the training process; their share is of the time in which
they were there. Parts of the training process are shares of its wall time. Only time within the measured steps counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from profiler.analyse.timeline import Intervals, Times, complement, innermost, intersect, overlaps, times, union
from profiler.analyse.window import Window, of_process, select
from profiler.run.model import (
    IN_MAIN,
    IN_WORKERS,
    INLINE,
    OWN_THREAD,
    RECEIVE,
    WAITING_FOR_WORK,
    WAITING_FOR_WORKERS,
    InputPart,
    Measure,
    Run,
    Table,
)
from profiler.run.tables import WORKER_OF, CallKind

THE_LOADER: Final = "the loader itself"
"""Its sampler, its bookkeeping: what is inside of `data` and of none of the other parts."""
BETWEEN: Final = "between batches"
_OF_WORKERS: Final = ("worker start", WAITING_FOR_WORK)
_OF_MAIN: Final = ("data", "loader start", "dataset", "dataset map", "collate", "tokenize", "pin memory", RECEIVE)
_SMALL: Final = 0.001
"""Share of wall below which a part is left out."""

_Key = tuple[str, int]
"""Name of a part, and its site (-1: unknown)."""


def input_parts(run: Run, window: Window) -> tuple[InputPart, ...]:
    """Parts of the input's time, the most seconds first; empty where no loader, worker or tokenizer was seen."""
    if not len(window):
        return ()
    workers = _workers(run, window)
    found = [
        *_parts(run, window, IN_WORKERS, *_of_workers(run, window, workers)),
        *_parts(run, window, IN_MAIN, _of_main(run, window, bool(len(workers))), window.wall_ns),
    ]
    return tuple(sorted(found, key=lambda part: (-part.seconds_per_step, part.name, str(part.site))))


def input_measures(run: Run, window: Window) -> dict[str, Measure]:
    """`loader_workers`: how many were there at once; nothing where none were seen."""
    workers = _workers(run, window)
    if not len(workers):
        return {}
    lives = [_life(run, pid) for pid in workers]
    most = max(sum(begin <= moment < end for begin, end in lives) for moment, _ in lives)
    return {"loader_workers": Measure("loader_workers", float(most), "1", n=len(lives), source="regions of workers")}


def _parts(run: Run, window: Window, where: str, found: Mapping[_Key, int], wall_ns: int) -> Iterable[InputPart]:
    for (name, site), ns in found.items():
        if ns > _SMALL * wall_ns:
            yield InputPart(name, where, window.per_step(ns), ns / wall_ns, run.sites[site] if site >= 0 else None)


# ---------------------------------------------------------------- workers


def _workers(run: Run, window: Window) -> list[int]:
    """Processes that worked for the stepping process (of its rank) in the measured steps."""
    rank = int(window.steps["rank"][0]) if len(window) else 0
    ours = _named(run, _OF_WORKERS) & (run.regions["pid"] != window.pid) & (run.regions["rank"] == rank)
    pids: list[int] = np.unique(run.regions["pid"][ours]).tolist()
    strangers = _of_others(run, window)
    return [pid for pid in pids if pid not in strangers and _there(run, window, pid)]


def _of_others(run: Run, window: Window) -> set[int]:
    """Workers of other processes that step: ranks that one process started look alike otherwise."""
    stepping = set(np.unique(run.steps["pid"]).tolist()) - {window.pid}
    said = run.calls[_is_named(run, run.calls, (WORKER_OF,)) & (run.calls["kind"] == CallKind.OTHER)]
    return {int(row["pid"]) for row in said if int(row["bytes"]) in stepping}


def _of_workers(run: Run, window: Window, workers: Iterable[int]) -> tuple[Mapping[_Key, int], int]:
    """ns of each part, and ns in which the workers were there."""
    total: defaultdict[_Key, int] = defaultdict(int)
    wall_ns = 0
    for pid in workers:
        there = _there(run, window, pid)
        main = _main_thread(run, pid)
        unseen = there
        for tid, rows in _by_thread(run.regions[run.regions["pid"] == pid]):
            for key, ns in _own_times(run, rows, window.spans).items():
                total[key] += ns
                unseen -= ns if tid == main else 0
        total[BETWEEN, -1] += max(0, unseen)
        wall_ns += there
    return total, wall_ns


def _life(run: Run, pid: int) -> tuple[int, int]:
    rows = run.regions[run.regions["pid"] == pid]
    return int(rows["begin"].min()), int(rows["end"].max())


def _there(run: Run, window: Window, pid: int) -> int:
    """ns of the measured steps in which this worker was there."""
    begin, end = _life(run, pid)
    return intersect(union([begin], [end]), window.spans).measure()


def _main_thread(run: Run, pid: int) -> int:
    """The thread of a worker that fetches; its queue has one of its own."""
    return int(run.regions["tid"][_named(run, _OF_WORKERS) & (run.regions["pid"] == pid)][0])


# ---------------------------------------------------------------- the training process


def _of_main(run: Run, window: Window, has_workers: bool) -> Mapping[_Key, int]:
    total: defaultdict[_Key, int] = defaultdict(int)
    own = of_process(run.regions, window)
    for tid, rows in _by_thread(own):
        data = select(rows, _is_named(run, rows, ("data", "loader start")))
        loader = intersect(union(data["begin"], data["end"]), window.spans)
        for key, ns in _own_times(run, rows, loader).items():
            total[_told(key, "" if tid == window.tid else OWN_THREAD, has_workers)] += ns
        for key, ns in _own_times(run, rows, _without(window.spans, loader)).items():
            total[_told(key, INLINE if tid == window.tid else OWN_THREAD, has_workers)] += ns
    return {key: ns for key, ns in total.items() if key[0]}


def _without(spans: Intervals, loader: Intervals) -> Intervals:
    return intersect(spans, complement(loader, int(spans.begin[0]), int(spans.end[-1])))


def _told(key: _Key, suffix: str, has_workers: bool) -> _Key:
    """A region of the training process as a part; no name: not the input's."""
    name, site = key
    if name not in _OF_MAIN:
        return "", -1
    if name == "data":
        name = WAITING_FOR_WORKERS if has_workers else THE_LOADER
    return name + suffix, site


# ---------------------------------------------------------------- regions of a thread


def _own_times(run: Run, rows: Table, spans: Intervals) -> Mapping[_Key, int]:
    """ns within `spans` of each region of one thread less the regions inside of it, by name and site."""
    segments = innermost(rows["begin"], rows["end"], rows["depth"])
    cut = overlaps(segments.begin, segments.end, spans)
    owner = segments.owner[cut.left]
    names, sites = times(rows["name"]), _sites(run, rows)
    ns = np.bincount(owner, cut.end - cut.begin, minlength=len(rows))
    total: defaultdict[_Key, int] = defaultdict(int)
    pairs, group = np.unique(np.stack([names, sites]), axis=1, return_inverse=True)
    for (name, site), amount in zip(pairs.T.tolist(), np.bincount(group.ravel(), ns).tolist(), strict=True):
        if amount:
            total[run.names[name], site] += int(amount)
    return total


def _sites(run: Run, rows: Table) -> Times:
    """Where each region comes from: the last call of its name before it says so, if any did."""
    found = np.full(len(rows), -1, np.int64)
    if not len(rows):
        return found
    calls = run.calls
    said = calls[
        (calls["kind"] == CallKind.OTHER) & (calls["pid"] == rows["pid"][0]) & (calls["tid"] == rows["tid"][0])
    ]
    said = said[np.argsort(said["begin"], kind="stable")]
    for name in np.unique(said["name"]).tolist():
        of_name = said[said["name"] == name]
        regions = np.flatnonzero(rows["name"] == name)
        last = np.searchsorted(of_name["begin"], rows["begin"][regions], "right") - 1
        found[regions] = np.where(last >= 0, of_name["site"][np.maximum(last, 0)], -1)
    return found


def _by_thread(rows: Table) -> Iterable[tuple[int, Table]]:
    for tid in np.unique(rows["tid"]).tolist():
        yield tid, rows[rows["tid"] == tid]


def _named(run: Run, names: Iterable[str]) -> np.typing.NDArray[np.bool_]:
    return _is_named(run, run.regions, names)


def _is_named(run: Run, rows: Table, names: Iterable[str]) -> np.typing.NDArray[np.bool_]:
    wanted = set(names)
    return np.isin(rows["name"], [number for number, name in enumerate(run.names) if name in wanted])
