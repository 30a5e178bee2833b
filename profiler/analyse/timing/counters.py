"""Sums up what the program counted in the measured steps, as a whole and by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import times
from profiler.analyse.model.device import CallSite, RunCounts, SiteCount
from profiler.analyse.model.measures import Measure
from profiler.analyse.window import NO_QUEUE, Window, device_kind, has_name, process_rows, select
from profiler.core.errors import Notice
from profiler.core.metrics import COUNTERS, PER_STEP, counter_unit
from profiler.run.code_origin import library_sites, project_folder, relative_site
from profiler.run.filter import rows_by
from profiler.run.model import Run, Table
from profiler.run.tables import (
    BLOCK_OF_CHECKPOINT,
    CALLER_OF_CHECKPOINT,
    GRAPH_BROKEN,
    LINE_OF,
    MIGHT_SYNC,
    RECOMPILED,
    TOKENIZED,
    WORKER_OF,
    CallKind,
    CountKind,
    ValueKind,
)

EXPECTED_COUNTERS: Final = tuple(counter.name for counter in COUNTERS if counter.needs_device)
"""Counters of a device; those that a run lacks are reported as not measured."""
NO_DEVICE: Final = "cpu"
"""Value of the fact `device` of a program that uses none, and of that part of a baseline's key."""
_HOOKS: Final = {
    **dict.fromkeys(("syncs", MIGHT_SYNC, "h2d", "d2h", "h2d_bytes", "d2h_bytes"), "tensors"),
    TOKENIZED: "",
    RECOMPILED: "dynamo",
}
"""Counter of the hooks -> the hook that must be installed. Launches and memory of plain torch have none."""
EXPECTED_GAUGES: Final = ("loss", "accuracy")
SOURCE: Final = "counters"
MAX_SITES: Final = 100
_NOT_CALLS: Final = (
    "dataset", "collate", WORKER_OF, TOKENIZED, RECOMPILED, CALLER_OF_CHECKPOINT, BLOCK_OF_CHECKPOINT, *LINE_OF.values()
)  # fmt: skip
"""Records of kind OTHER that only name a line or the parent of a worker: nothing was asked of a device."""
_GAUGE_UNITS: Final = {"device_memory": "bytes"}


def counters(run: Run, window: Window) -> dict[str, Measure]:
    """Mean per measured step of every counter. A step that does not mention one counted 0 of it."""
    counted = _values_by_name(run, window, ValueKind.COUNTER)
    zeros = _zero_counters(run) if len(window) else ()
    measures = {}
    for name in dict.fromkeys((*counted, *EXPECTED_COUNTERS, *zeros)):
        full, unit = f"{name}{PER_STEP}", f"{counter_unit(name) or 1}/step"
        if len(window) and (name in counted or name in zeros):
            mean = float(sum_per_step(counted[name], window).mean()) if name in counted else 0.0
            measures[full] = Measure(full, mean, unit, n=len(window), source=SOURCE)
        else:
            reason = NO_QUEUE if device_kind(run) == NO_DEVICE else Notice("not-counted")
            measures[full] = Measure(full, None, unit, reason=window.reason or reason)
    return measures


def active_counters(run: Run) -> tuple[str, ...]:
    """Counters that hooks would have counted had there been anything: without a record their amount is 0."""
    if "package" not in run.info.facts:  # no hook was installed
        return ()
    failed = {status.name.removeprefix("hook ") for status in run.info.collectors if status.state == "failed"}
    absent = (MIGHT_SYNC,) if run.info.is_counted else uncounted_on_cpu(run)
    return tuple(name for name, hook in _HOOKS.items() if hook not in failed and name not in absent)


def uncounted_on_cpu(run: Run, totals: Iterable[str] = ()) -> tuple[str, ...]:
    """Counters that are unknown rather than 0, since the run had no device and did not count them itself.

    :param totals: what it did count.
    """
    if run.info.facts.get("device") != NO_DEVICE or run.info.is_counted:
        return ()
    return tuple(name for name in EXPECTED_COUNTERS if name not in set(totals))


def _zero_counters(run: Run) -> tuple[str, ...]:
    """Active counters, where the program stated its device: calls sync on a GPU, and might sync without one."""
    if device_kind(run) not in (NO_DEVICE, "cuda"):
        return ()
    return tuple(name for name in active_counters(run) if name != MIGHT_SYNC or device_kind(run) == NO_DEVICE)


def gauges(run: Run, window: Window) -> dict[str, Measure]:
    """Mean of every gauge over the measured steps that set it, weighted by their tokens where all of them have some."""
    gauged = _values_by_name(run, window, ValueKind.GAUGE)
    measures = {}
    for name in dict.fromkeys((*gauged, *EXPECTED_GAUGES)):
        unit = _GAUGE_UNITS.get(name, "1")
        if len(window) and name in gauged:
            measures[name] = _gauge(name, unit, gauged[name], window)
        else:
            measures[name] = Measure(name, None, unit, reason=window.reason or Notice("no-gauge"))
    return measures


def _gauge(name: str, unit: str, rows: Table, window: Window) -> Measure:
    step = step_numbers(rows, window)
    values, step = rows["value"][step >= 0].astype(np.float64), step[step >= 0]
    if not len(values):
        return Measure(name, None, unit, reason=Notice("no-gauge-in-steps"))
    broken = int((~np.isfinite(values)).sum())
    if broken:
        reason = Notice("not-finite", {"broken": broken, "steps": len(values)})
        return Measure(name, None, unit, n=len(values), reason=reason)
    tokens = window.steps["tokens"][step].astype(np.float64)
    by_tokens = bool((tokens > 0).all())
    mean = float(np.average(values, weights=tokens if by_tokens else None))
    return Measure(name, mean, unit, n=len(values), source="gauges")


def counter_sums(run: Run, window: Window, names: Iterable[str]) -> dict[str, npt.NDArray[np.float64]]:
    """Amount in each measured step of those of `names` that were counted at all."""
    counted = _values_by_name(run, window, ValueKind.COUNTER)
    return {name: sum_per_step(counted[name], window) for name in names if name in counted}


def steady_launches(run: Run, window: Window) -> float:
    """The launches that three of four measured steps have at least; 0 where that is not known, or of a single step."""
    counts = counter_sums(run, window, ["launches"]).get("launches")
    return 0.0 if counts is None or len(window) < 2 else float(np.quantile(counts, 0.25, method="lower"))


def counter_rows(run: Run, window: Window, name: str) -> Table | None:
    """Each amount that a counter of the stepping process got; None if it was not counted."""
    return _values_by_name(run, window, ValueKind.COUNTER).get(name)


def sum_per_step(rows: Table, window: Window) -> npt.NDArray[np.float64]:
    """Sum of the rows' values in each measured step."""
    step = step_numbers(rows, window)
    inside = step >= 0
    return np.bincount(step[inside], rows["value"][inside], minlength=len(window)).astype(np.float64)


def step_numbers(rows: Table, window: Window) -> npt.NDArray[np.int64]:
    """Row of the window's step that each value belongs to, by the number of the step; -1 for none."""
    index = window.steps["index"]
    order = np.argsort(index, kind="stable")
    at = np.searchsorted(index[order], rows["step"])
    at = np.minimum(at, len(index) - 1)
    return np.where(index[order][at] == rows["step"], order[at], -1)


def _values_by_name(run: Run, window: Window, kind: ValueKind) -> dict[str, Table]:
    rows = process_rows(run.values, window) if len(window) else run.values
    by_number = rows_by(select(rows, rows["kind"] == kind), "name")
    return {run.names[number]: values for number, values in by_number.items()}


def gauge_per_step(run: Run, window: Window, name: str) -> npt.NDArray[np.float64]:
    """The last value of a gauge in each measured step; NaN where it has none."""
    values = np.full(len(window), np.nan)
    rows = _values_by_name(run, window, ValueKind.GAUGE).get(name)
    if rows is not None:
        step = step_numbers(rows, window)
        values[step[step >= 0]] = rows["value"][step >= 0]
    return values


def call_counts(calls: Table) -> npt.NDArray[np.float64]:
    """How many calls each record stands for: one record is written for all reads by one line in one step."""
    counts = np.where(calls["kind"] == CallKind.MIGHT_SYNC, np.maximum(calls["bytes"], 1), 1)
    return counts.astype(np.float64)


def calls_in_steps(run: Run, window: Window) -> Table:
    """Calls of all threads of the stepping process that began in a measured step."""
    calls = process_rows(run.calls, window)
    inside: Table = calls[window.step_rows(calls["begin"]) >= 0]
    return inside


def _bytes(calls: Table) -> Table:
    size: Table = np.where(calls["kind"] == CallKind.MIGHT_SYNC, 0, calls["bytes"])
    return size


def call_sites(run: Run, window: Window, *, with_operations: bool) -> tuple[CallSite, ...]:
    """One row per line and kind of call, in runs with hooks per operation too; all threads, the most seconds first."""
    if not len(window):
        return ()
    calls = calls_in_steps(run, window)
    is_note = (calls["kind"] == CallKind.OTHER) & has_name(run, calls, *_NOT_CALLS)
    calls = calls[(calls["site"] >= 0) & ~is_note]
    shape = (len(run.sites), len(CallKind), len(run.names) + 1)
    if not len(calls):
        return ()
    name = calls["name"] + 1 if with_operations else np.zeros(len(calls), np.int64)
    keys, group = np.unique(np.ravel_multi_index((calls["site"], calls["kind"], name), shape), return_inverse=True)
    length = times(calls["end"]) - times(calls["begin"])
    sums = [
        np.bincount(group, column)
        for column in (call_counts(calls), length, np.clip(calls["blocked"], 0, length), _bytes(calls))
    ]
    steps, rows, libraries = (
        len(window),
        [],
        Counter(zip(group.ravel().tolist(), library_sites(run, calls), strict=True)),
    )
    library = {number: line for (number, line), _ in reversed(libraries.most_common()) if line is not None}
    parts = (part.tolist() for part in np.unravel_index(keys, shape))
    for number, (site, kind, name) in enumerate(zip(*parts, strict=True)):
        count, seconds, blocked, size = (float(column[number]) for column in sums)
        rows.append(
            CallSite(
                site=run.sites[site],
                kind=CallKind(kind).name.lower(),
                operation=run.names[name - 1] if name else "",
                calls_per_step=count / steps,
                seconds_per_step=window.per_step(seconds),
                blocked_per_step=window.per_step(blocked),
                bytes_per_step=size / steps,
                library=library.get(number),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.seconds_per_step, row.site, row.kind, row.operation))[:MAX_SITES])


# ---------------------------------------------------------------- by line

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
