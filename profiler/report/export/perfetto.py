"""Writes a run as Chrome trace JSON, which ui.perfetto.dev and chrome://tracing open.

Tracks: the steps and the threads of each process with their regions and calls, the torch operators of a thread in the
window that torch's profiler traced, its stack samples as a chart over time, the queues of each device with an arrow
from the call to its activity, and counters and samples.

Every slice is a begin and an end, not a begin and a length: readers convert these decimal microseconds to binary
numbers, so that a begin plus a length would end a nanosecond off the next begin. Equal times stay equal.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profiler.core import units
from profiler.core.errors import ProfilerError
from profiler.core.metrics import SAMPLE_NAMES
from profiler.report.export.tracks import EXPORTER, Tracks, join, outer_first, rows
from profiler.report.notices import describe
from profiler.report.text import step_text
from profiler.run.filter import group_rows
from profiler.run.model import Run, Site, Table, Traced
from profiler.run.tables import ActivityKind, CallKind

_SLICE, _EVENT = 0, 1
_CUMULATIVE: Final = ("_s", "ctx_voluntary", "ctx_involuntary", "peak_rss")

_Item = tuple[int, int, int, str, str]
"""Time, minus the end (of those that begin together the outermost comes first), which of the two kinds, the track, and
the text of the event after its time."""
MAX_SLICES: Final = 200_000
"""Per kind. Three kinds make 1.2 million events, some 150 MB of JSON, all of which a browser loads."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The shortest slices of one kind, which a timeline has no room for."""

    kind: str
    shown: int
    total: int
    longest_ns: int
    """The longest of those that are left out."""

    def describe(self) -> str:
        """`3,455 of 3,655 torch operators, the shortest: none took more than 9.68 µs`."""
        longest = units.seconds(self.longest_ns / 1e9)
        return f"{self.total - self.shown:,} of {self.total:,} {self.kind}, the shortest: none took more than {longest}"


def limit_trace(run: Run, traced: Traced, limit: int) -> tuple[Run, Traced, tuple[LeftOut, ...]]:
    """`run` and `traced` with at most `limit` operators, runtime calls and device activities of torch's trace each.

    The longest slices stay. A slice that contains another is at least as long, so nothing loses its parents.
    """
    pids = list(traced.pids)
    from_trace = np.isin(run.calls["pid"], pids) & (run.calls["correlation"] != 0)
    left_out: list[LeftOut] = []

    def longest(table: Table, limited: npt.NDArray[np.bool_], kind: str) -> Table:
        """`table` in its order, without the shortest of its `limited` rows."""
        positions = np.flatnonzero(limited)
        if len(positions) <= limit:
            return table
        lengths = (table["end"] - table["begin"])[positions]
        falling = np.lexsort((table["begin"][positions], -lengths))
        keep = ~limited
        keep[positions[falling[:limit]]] = True
        left_out.append(LeftOut(kind, limit, len(positions), int(lengths[falling[limit]])))
        return table[keep]

    operators = longest(traced.operators, np.ones(len(traced.operators), np.bool_), "torch operators")
    calls = longest(run.calls, from_trace, "runtime calls of torch's trace")
    activities = longest(run.activities, np.isin(run.activities["pid"], pids), "device activities of torch's trace")
    return replace(run, calls=calls, activities=activities), replace(traced, operators=operators), tuple(left_out)


def render(run: Run, traced: Traced | None = None, left_out: tuple[LeftOut, ...] = ()) -> Iterator[str]:
    """Return the file in chunks, in order of time; times are microseconds since the run began, exact to the nanosecond.

    :param traced: the operators of torch's trace, which are in no table.
    :param left_out: what `limit_trace` left out, which the file mentions.
    :raises ProfilerError: nothing was recorded.
    """
    tables = (run.steps, run.regions, run.calls, run.activities, run.values, run.samples, run.stacks)
    if not any(map(len, tables)) and (traced is None or not len(traced.operators)):
        raise ProfilerError("there is nothing to export: this run has no records at all")
    return _Trace(run, traced, left_out).text()


def microseconds(ns: int) -> str:
    """Write 123.456 exactly, where a division would round."""
    integer, fraction = divmod(abs(ns), 1000)
    return f"{'-' if ns < 0 else ''}{integer}.{fraction:03d}"


class _Trace:
    """One pass over a run."""

    def __init__(self, run: Run, traced: Traced | None, left_out: tuple[LeftOut, ...]) -> None:
        self._run = run
        self._traced = traced
        self._left_out = left_out
        self._zero = run.info.begin
        self._tracks = Tracks(run)
        self._names = [json.dumps(name) for name in run.names]
        self._sites = [json.dumps(str(site)) for site in run.sites]
        self._cut = self._unwritable = 0

    def text(self) -> Iterator[str]:
        yield '{"displayTimeUnit":"ms","traceEvents":[\n'
        events = self._events(heapq.merge(*self._sources()))
        # the names come last, when all tracks are known; readers accept them anywhere
        yield from join(chain(events, self._tracks.metadata()), ",\n")
        yield f'\n],\n"otherData":{json.dumps(self._about())}}}\n'

    def _about(self) -> dict[str, Any]:
        info = self._run.info
        problems = (*self._run.problems, *(self._traced.problems if self._traced else ()))
        return {
            "exporter": EXPORTER,
            "clock": "CLOCK_MONOTONIC; ts 0 is begin_ns of it",
            "begin_ns": str(self._zero),  # text: more digits than a JSON number holds everywhere
            "started_at": info.started_at,
            "label": info.label,
            "argv": list(info.argv),
            "level": info.level,
            "state": info.state,
            "step": step_text(self._run.step),
            "slices cut at the end of what holds them": self._cut,
            "values that are no finite number, left out": self._unwritable,
            "left out of torch's trace": [item.describe() for item in self._left_out],
            "problems": list(dict.fromkeys(map(describe, problems))),
        }

    def _sources(self) -> Iterator[Iterator[_Item]]:
        yield self._steps()
        yield self._regions()
        yield self._calls()
        if self._traced is not None:
            yield self._operators(self._traced)
        yield self._activities()
        yield self._values()
        yield self._samples()
        for samples in group_rows(self._run.stacks, "pid", "tid"):
            yield self._stacks(samples, int(samples["pid"][0]), int(samples["tid"][0]))

    def _events(self, items: Iterator[_Item]) -> Iterator[str]:
        """Yield the text of every event. Ends wait in a heap; a slice inside another one is cut where that ends."""
        waiting: list[tuple[int, int, str]] = []
        open_ends: dict[str, list[int]] = {}
        number = 0
        for begin, minus_end, kind, track, event in items:
            while waiting and waiting[0][0] < begin + (kind == _SLICE):
                end, _, ended = heapq.heappop(waiting)
                yield self._event("E", end, ended)
            if kind == _EVENT:
                yield f'{{"ts":{microseconds(begin - self._zero)},{event}'
                continue
            ends, end = open_ends.setdefault(track, []), -minus_end
            while ends and ends[-1] <= begin:
                ends.pop()
            if ends and end > ends[-1]:
                end = ends[-1]
                self._cut += 1
            ends.append(end)
            number -= 1  # of those that end together the last begun ends first
            heapq.heappush(waiting, (end, number, track))
            yield self._event("B", begin, track, event)
        while waiting:
            end, _, ended = heapq.heappop(waiting)
            yield self._event("E", end, ended)

    def _event(self, phase: str, when: int, track: str, attributes: str = "") -> str:
        return f'{{"ph":"{phase}","ts":{microseconds(when - self._zero)},{track}{attributes or "}"}'

    def _steps(self) -> Iterator[_Item]:
        table = self._run.steps
        columns = ("begin", "end", "pid", "tid", "index", "tokens", "warmup")
        for begin, end, pid, tid, index, tokens, warmup in rows(table, columns, outer_first(table)):
            args = (f',"tokens":{tokens}' if tokens else "") + (',"warm-up":true' if warmup else "")
            event = f',"cat":"step","name":"step {index}","args":{{"index":{index}{args}}}}}'
            yield begin, -end, _SLICE, self._tracks.steps(pid, tid), event

    def _regions(self) -> Iterator[_Item]:
        table = self._run.regions
        for begin, end, pid, tid, name in rows(table, ("begin", "end", "pid", "tid", "name"), outer_first(table)):
            event = f',"cat":"region","name":{self._name(name)}}}'
            yield begin, -end, _SLICE, self._tracks.thread(pid, tid), event

    def _calls(self) -> Iterator[_Item]:
        table, kinds = self._run.calls, {kind.value: kind.name.lower() for kind in CallKind}
        columns = ("begin", "end", "pid", "tid", "name", "kind", "site", "bytes", "blocked", "correlation")
        for row, arrow in _rows_with_arrows(table, columns, self._run.activities):
            begin, end, pid, tid, name, kind, site, size, blocked, correlation = row
            args = f'"kind":"{kinds.get(kind, kind)}"'
            if 0 <= site < len(self._sites):
                args += f',"site":{self._sites[site]}'
            if size:
                args += f',"bytes":{size}'
            if blocked:
                args += f',"blocked_us":{microseconds(blocked)}'
            track = self._tracks.thread(pid, tid)
            yield begin, -end, _SLICE, track, f',"cat":"call","name":{self._name(name)},"args":{{{args}}}}}'
            if arrow:
                yield begin, -begin, _EVENT, track, self._arrow("s", pid, correlation, track)

    def _operators(self, traced: Traced) -> Iterator[_Item]:
        """Yield a track per thread: what torch ran in the window that its profiler traced, nested as it was called."""
        names, kinds = [json.dumps(name) for name in traced.names], ("operator", "annotation")
        columns = ("begin", "end", "pid", "tid", "name", "annotation")
        for begin, end, pid, tid, name, annotation in rows(traced.operators, columns, outer_first(traced.operators)):
            event = f',"cat":"{kinds[annotation]}","name":{names[name]}}}'
            yield begin, -end, _SLICE, self._tracks.operators(pid, tid), event

    def _activities(self) -> Iterator[_Item]:
        table, kinds = self._run.activities, {kind.value: kind.name.lower() for kind in ActivityKind}
        columns = ("begin", "end", "pid", "device", "stream", "name", "kind", "bytes", "correlation")
        for row, arrow in _rows_with_arrows(table, columns, self._run.calls):
            begin, end, pid, device, stream, name, kind, size, correlation = row
            args = f'"kind":"{kinds.get(kind, kind)}"' + (f',"bytes":{size}' if size else "")
            track = self._tracks.queue(pid, device, stream)
            yield begin, -end, _SLICE, track, f',"cat":"activity","name":{self._name(name)},"args":{{{args}}}}}'
            if arrow:
                yield begin, -begin, _EVENT, track, self._arrow("f", pid, correlation, track)

    def _arrow(self, phase: str, pid: int, correlation: int, track: str) -> str:
        bound = ',"bp":"e"' if phase == "f" else ""
        flow = self._tracks.flow(pid, correlation)
        return f'"ph":"{phase}",{track},"cat":"launch","name":"launch","id":{flow}{bound}}}'

    def _values(self) -> Iterator[_Item]:
        table = self._run.values
        order = np.argsort(table["time"], kind="stable")
        for when, pid, name, value in rows(table, ("time", "pid", "name", "value"), order):
            yield from self._counter(when, self._tracks.process(pid), self._name(name), value)

    def _samples(self) -> Iterator[_Item]:
        """Yield samples of processes and the machine: levels, and not what only grows."""
        levels = {
            number: name
            for number, name in enumerate(self._run.names)
            if name in SAMPLE_NAMES and not name.startswith("thread.") and not name.endswith(_CUMULATIVE)
        }
        table = self._run.samples[np.isin(self._run.samples["name"], list(levels))]
        order = np.argsort(table["time"], kind="stable")
        for when, pid, tid, name, value in rows(table, ("time", "pid", "tid", "name", "value"), order):
            title = f"{levels[name]} {tid}" if levels[name].startswith("gpu.") else levels[name]
            owner = self._tracks.process(pid) if pid else self._tracks.machine()
            yield from self._counter(when, owner, json.dumps(f"{title} ({SAMPLE_NAMES[levels[name]][0]})"), value)

    def _counter(self, when: int, owner: int, name: str, value: float) -> Iterator[_Item]:
        if math.isfinite(value):
            yield when, -when, _EVENT, "", f'"ph":"C","pid":{owner},"name":{name},"args":{{"value":{value!r}}}}}'
        else:
            self._unwritable += 1

    def _stacks(self, table: Table, pid: int, tid: int) -> Iterator[_Item]:
        """Draw samples of one thread as a chart: a frame that consecutive samples share is one slice."""
        track = self._tracks.stacks(pid, tid)
        shown: tuple[Site, ...] = ()
        until = 0
        for begin, end, stack in rows(table, ("begin", "end", "stack"), outer_first(table)):
            frames = self._run.stack_frames[stack]
            same = (
                sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(shown, frames, strict=False)))
                if begin <= until
                else 0
            )
            closing = min(begin, until)
            yield from ((closing, -closing, _EVENT, track, f'"ph":"E",{track}}}') for _ in shown[same:])
            yield from ((begin, -begin, _EVENT, track, _frame(site, track)) for site in frames[same:])
            shown, until = frames, max(until, end)
        yield from ((until, -until, _EVENT, track, f'"ph":"E",{track}}}') for _ in shown)

    def _name(self, number: int) -> str:
        return self._names[number] if 0 <= number < len(self._names) else '"(unknown)"'


def _frame(site: Site, track: str) -> str:
    at = json.dumps(f"{site.file}:{site.line}")
    return f'"ph":"B",{track},"cat":"stack","name":{json.dumps(site.function or site.file)},"args":{{"at":{at}}}}}'


def _rows_with_arrows(
    table: Table, columns: tuple[str, ...], counterpart: Table
) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """Return the rows of `table`, the outer ones first, each with whether an arrow ends at it (see `_arrow_ends`)."""
    order, arrows = outer_first(table), _arrow_ends(table, counterpart)
    return zip(rows(table, columns, order), (arrow for (arrow,) in rows(arrows, ("arrow",), order)), strict=True)


def _arrow_ends(table: Table, counterpart: Table) -> Table:
    """Return a column `arrow`: whether an arrow ends at the row, the first of each correlation that both tables have.

    One call may cause several activities, and a wait may name what it waited for; an arrow has one end on each side.
    """
    length = len(table)
    pids, correlations = (
        np.unique(np.concatenate([table[name], counterpart[name]]), return_inverse=True)[1]
        for name in ("pid", "correlation")
    )
    # ranks of values instead of values, so that any process and any correlation fit into one key
    keys = pids * (length + len(counterpart)) + correlations
    order = np.argsort(table["begin"], kind="stable")
    first = np.zeros(length, np.bool_)
    first[order[np.unique(keys[:length][order], return_index=True)[1]]] = True
    matched = first & np.isin(keys[:length], keys[length:]) & (table["correlation"] != 0)
    arrows: Table = matched.view(np.dtype([("arrow", np.bool_)]))
    return arrows
