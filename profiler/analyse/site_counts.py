"""Tells what each line of a program does in each step, as far as it can be counted exactly: waits for a device, copies,
operators, memory, compilations.

Two runs of a program that does the same have equal counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.model import RunCounts, SiteCount
from profiler.run.code_origin import library_sites, project_folder, relative_site
from profiler.run.model import Run, Table
from profiler.run.tables import GRAPH_BROKEN, RECOMPILED, TOKENIZED, CallKind, CountKind

_CALLS: Final = {
    CallKind.SYNC: CountKind.SYNC,
    CallKind.H2D: CountKind.H2D,
    CallKind.D2H: CountKind.D2H,
    CallKind.D2D: CountKind.D2D,
    CallKind.LAUNCH: CountKind.LAUNCH,
}
_NAMED_CALLS: Final = {
    GRAPH_BROKEN: CountKind.GRAPH_BREAK,
    RECOMPILED: CountKind.RECOMPILATION,
    TOKENIZED: CountKind.TEXT,
}
"""Calls of kind OTHER."""
_COLUMNS: Final = [
    (name, np.int64) for name in ("kind", "name", "site", "frame", "pid", "step", "count", "bytes", "time")
]
_KEY: Final = ["kind", "name", "site"]
_NO_STEPS: Final = np.zeros(0, np.int64)

Steps = dict[int, npt.NDArray[np.int64]]
"""Process -> the ends of its steps (ns)."""


def run_counts(run: Run, label: str = "") -> RunCounts:
    """The counts of every line with what a report tells about the run.

    :param label: name of the side of a comparison.
    """
    return RunCounts(run.info, len(run.steps), site_counts(run), label)


def site_counts(run: Run) -> tuple[SiteCount, ...]:
    """The counts of every line, by kind and the most frequent first; its file is relative to the project's folder.

    Of several ranks, a step is one step of one rank. Events after the last step are not counted: a program that is
    stopped ends within a step. Processes without steps, such as a loader's workers, are not counted where others step.
    """
    ends: Steps = {int(pid): np.sort(run.steps["end"][run.steps["pid"] == pid]) for pid in np.unique(run.steps["pid"])}
    folder = project_folder(run)
    counts, libraries = [], library_sites(run, run.calls)
    lines = list(dict.fromkeys(filter(None, libraries)))
    number_of = {line: number for number, line in enumerate(lines)}
    frames_of_calls = np.array([-1 if line is None else number_of[line] for line in libraries], np.int64)
    for rows in _by_key(_events(run, ends, frames_of_calls)):
        kind, name, site = (int(rows[column][0]) for column in _KEY)
        before, before_bytes, each = 0, 0, Counter[tuple[int, int]]()
        by_process = {}
        for pid in np.unique(rows["pid"]):  # each process has steps of its own
            own = rows[rows["pid"] == pid]
            steps = len(ends.get(int(pid), _NO_STEPS))
            before += int(own["count"][own["step"] == 0].sum())
            before_bytes += int(own["bytes"][own["step"] == 0].sum())
            numbers, sizes = (_sums(own, column, steps) for column in ("count", "bytes"))
            each.update(zip(numbers.tolist(), sizes.tolist(), strict=True))
            by_process[int(pid)] = numbers
        where = relative_site(run.sites[site], folder) if site >= 0 else None
        count = SiteCount(CountKind(kind), run.names[name], where, before, before_bytes, each)
        usual = count.usual_number
        others = {
            (pid, int(step)): int(numbers[step]) - usual
            for pid, numbers in by_process.items()
            for step in np.flatnonzero(numbers != usual)
        }
        calls = Counter(lines[number] for number in rows["frame"].tolist() if number >= 0)
        frames = tuple(sorted(calls.items(), key=lambda each: (-each[1], str(each[0]))))
        counts.append(replace(count, others=others, frames=frames))
    return tuple(sorted(counts, key=lambda count: (count.kind, -count.mean, -count.before, count.name)))


def _events(run: Run, ends: Steps, frames: npt.NDArray[np.int64]) -> Table:
    """Everything that was counted, with the number of its step in its process.

    :param frames: the number of the line of a library, of each call; -1: none.
    """
    kinds = np.full(len(run.calls), -1, np.int64)
    for call, kind in _CALLS.items():
        kinds[run.calls["kind"] == call] = kind
    for name, kind in _NAMED_CALLS.items():
        if name in run.names:
            kinds[(run.calls["kind"] == CallKind.OTHER) & (run.calls["name"] == run.names.index(name))] = kind
    is_counted = kinds >= 0
    calls, kinds = run.calls[is_counted], kinds[is_counted]
    rows = np.zeros(len(calls) + len(run.counts), _COLUMNS)
    first, later = rows[: len(calls)], rows[len(calls) :]
    for column in ("name", "site", "pid", "bytes"):
        first[column], later[column] = calls[column], run.counts[column]
    first["frame"], later["frame"] = frames[is_counted], -1
    first["time"], later["time"] = calls["begin"], run.counts["time"]
    first["kind"], later["kind"] = kinds, run.counts["kind"]
    first["count"], later["count"] = 1, run.counts["count"]
    is_text = first["kind"] == CountKind.TEXT
    first["count"][is_text], first["bytes"][is_text] = first["bytes"][is_text], 0
    for pid in np.unique(rows["pid"]):
        own = rows["pid"] == pid
        rows["step"][own] = np.searchsorted(ends.get(int(pid), _NO_STEPS), rows["time"][own], side="left")
    stepping = rows[np.isin(rows["pid"], list(ends))] if ends else rows
    return _without_lower_peaks(stepping)


def _without_lower_peaks(rows: Table) -> Table:
    """Of several boundaries in a step, the one before which most memory was in use decides."""
    is_peak = rows["kind"] == CountKind.PEAK
    moments, group = np.unique(rows[["pid", "step", "time"]][is_peak], return_inverse=True)
    totals = np.bincount(group.ravel(), rows["bytes"][is_peak], len(moments)).astype(np.int64)
    order = np.lexsort([-totals, moments["step"], moments["pid"]])
    _, first = np.unique(moments[["pid", "step"]][order], return_index=True)
    kept: Table = np.concatenate([rows[~is_peak], rows[is_peak][np.isin(group.ravel(), order[first])]])
    return kept


def _by_key(rows: Table) -> Iterator[Table]:
    """The rows of each kind, name and line."""
    rows = rows[np.lexsort([rows[column] for column in reversed(_KEY)])]
    changed = np.zeros(max(0, len(rows) - 1), np.bool_)
    for column in _KEY:
        changed |= rows[column][1:] != rows[column][:-1]
    if len(rows):
        yield from np.split(rows, np.flatnonzero(changed) + 1)


def _sums(rows: Table, column: str, steps: int) -> npt.NDArray[np.int64]:
    """The sum of a column in each step after the first one."""
    sums = np.zeros(steps + 1, np.int64)
    np.add.at(sums, rows["step"], rows[column])
    return sums[1:steps]
