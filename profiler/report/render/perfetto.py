"""A run as Chrome trace JSON, which ui.perfetto.dev and chrome://tracing open.

Tracks: the steps and the threads of each process with their regions and calls, the torch operators of a thread in the
window that torch's profiler traced, its stack samples as a chart over time, the queues of each device with an arrow
from the call to its activity, and what was counted and sampled.

Every slice is a begin and an end, not a begin and a length: readers turn these decimals of microseconds into binary
numbers, and a begin plus a length then ends a nanosecond beside the next begin. Equal times stay equal.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

import numpy as np

from profiler.core.errors import ProfilerError
from profiler.core.samples import SAMPLE_NAMES
from profiler.report.render._traced import EXPORTER, joined, outer_first, rows
from profiler.report.render._tracks import Tracks
from profiler.report.render.window import LeftOut
from profiler.run.filter import group_rows
from profiler.run.model import Run, Site, Table, Traced
from profiler.run.tables import ActivityKind, CallKind

_SLICE, _EVENT = 0, 1
_CUMULATIVE: Final = ("_s", "ctx_voluntary", "ctx_involuntary", "peak_rss")

_Item = tuple[int, int, int, str, str]
"""Time, minus the end (so that of those that begin together the outermost comes first), which of the two kinds, the
track, and the event's text behind its time."""


def render(run: Run, traced: Traced | None = None, left_out: tuple[LeftOut, ...] = ()) -> Iterator[str]:
    """The file in pieces, in order of time; times are microseconds since the run began, exact to the nanosecond.

    :param traced: the operators of torch's trace, which are in no table.
    :param left_out: what of it was left out before: the file says so.
    :raises ProfilerError: nothing was recorded.
    """
    tables = (run.steps, run.regions, run.calls, run.activities, run.values, run.samples, run.stacks)
    if not any(map(len, tables)) and (traced is None or not len(traced.operators)):
        raise ProfilerError("there is nothing to export: this run has no records at all")
    return _Trace(run, traced, left_out).text()


def microseconds(ns: int) -> str:
    """123.456: exact, where a division would round."""
    whole, rest = divmod(abs(ns), 1000)
    return f"{'-' if ns < 0 else ''}{whole}.{rest:03d}"


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
        # the names come last: only then is known which tracks there are, and readers take them anywhere
        yield from joined(chain(events, self._tracks.named()), ",\n")
        yield f'\n],\n"otherData":{json.dumps(self._about())}}}\n'

    def _about(self) -> dict[str, Any]:
        info = self._run.info
        return {
            "exporter": EXPORTER,
            "clock": "CLOCK_MONOTONIC; ts 0 is begin_ns of it",
            "begin_ns": str(self._zero),  # text: more digits than a JSON number holds everywhere
            "started_at": info.started_at,
            "label": info.label,
            "argv": list(info.argv),
            "level": info.level,
            "state": info.state,
            "step": self._run.step_source,
            "slices cut at the end of what holds them": self._cut,
            "values that are no finite number, left out": self._unwritable,
            "left out of torch's trace": [one.words() for one in self._left_out],
            "problems": list(dict.fromkeys((*self._run.problems, *(self._traced.problems if self._traced else ())))),
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
        for own in group_rows(self._run.stacks, "pid", "tid"):
            yield self._stacks(own, int(own["pid"][0]), int(own["tid"][0]))

    def _events(self, items: Iterator[_Item]) -> Iterator[str]:
        """The text of every event; ends wait in a heap, and on each track what lies in another is cut at its end."""
        waiting: list[tuple[int, int, str]] = []
        open_ends: dict[str, list[int]] = {}
        number = 0
        for begin, minus_end, kind, track, rest in items:
            while waiting and waiting[0][0] < begin + (kind == _SLICE):
                end, _, ended = heapq.heappop(waiting)
                yield self._event("E", end, ended)
            if kind == _EVENT:
                yield f'{{"ts":{microseconds(begin - self._zero)},{rest}'
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
            yield self._event("B", begin, track, rest)
        while waiting:
            end, _, ended = heapq.heappop(waiting)
            yield self._event("E", end, ended)

    def _event(self, phase: str, when: int, track: str, rest: str = "") -> str:
        return f'{{"ph":"{phase}","ts":{microseconds(when - self._zero)},{track}{rest or "}"}'

    # ---------------------------------------------------------------- the tables

    def _steps(self) -> Iterator[_Item]:
        table = self._run.steps
        columns = ("begin", "end", "pid", "tid", "index", "tokens", "warmup")
        for begin, end, pid, tid, index, tokens, warmup in rows(table, columns, outer_first(table)):
            said = (f',"tokens":{tokens}' if tokens else "") + (',"warm-up":true' if warmup else "")
            rest = f',"cat":"step","name":"step {index}","args":{{"index":{index}{said}}}}}'
            yield begin, -end, _SLICE, self._tracks.steps(pid, tid), rest

    def _regions(self) -> Iterator[_Item]:
        table = self._run.regions
        for begin, end, pid, tid, name in rows(table, ("begin", "end", "pid", "tid", "name"), outer_first(table)):
            rest = f',"cat":"region","name":{self._name(name)}}}'
            yield begin, -end, _SLICE, self._tracks.thread(pid, tid), rest

    def _calls(self) -> Iterator[_Item]:
        table, kinds = self._run.calls, {kind.value: kind.name.lower() for kind in CallKind}
        order, joined_to = outer_first(table), _joins(table, self._run.activities)
        columns = ("begin", "end", "pid", "tid", "name", "kind", "site", "bytes", "blocked", "correlation")
        for (begin, end, pid, tid, name, kind, site, size, blocked, correlation), (arrow,) in zip(
            rows(table, columns, order), rows(joined_to, ("arrow",), order), strict=True
        ):
            said = f'"kind":"{kinds.get(kind, kind)}"'
            if 0 <= site < len(self._sites):
                said += f',"site":{self._sites[site]}'
            if size:
                said += f',"bytes":{size}'
            if blocked:
                said += f',"blocked_us":{microseconds(blocked)}'
            track = self._tracks.thread(pid, tid)
            yield begin, -end, _SLICE, track, f',"cat":"call","name":{self._name(name)},"args":{{{said}}}}}'
            if arrow:
                yield begin, -begin, _EVENT, track, self._arrow("s", pid, correlation, track)

    def _operators(self, traced: Traced) -> Iterator[_Item]:
        """A track for each thread: what torch ran in the window that its profiler traced, as deep as it was called."""
        names, kinds = [json.dumps(name) for name in traced.names], ("operator", "annotation")
        columns = ("begin", "end", "pid", "tid", "name", "annotation")
        for begin, end, pid, tid, name, annotation in rows(traced.operators, columns, outer_first(traced.operators)):
            rest = f',"cat":"{kinds[annotation]}","name":{names[name]}}}'
            yield begin, -end, _SLICE, self._tracks.operators(pid, tid), rest

    def _activities(self) -> Iterator[_Item]:
        table, kinds = self._run.activities, {kind.value: kind.name.lower() for kind in ActivityKind}
        order, joined_to = outer_first(table), _joins(table, self._run.calls)
        columns = ("begin", "end", "pid", "device", "stream", "name", "kind", "bytes", "correlation")
        for (begin, end, pid, device, stream, name, kind, size, correlation), (arrow,) in zip(
            rows(table, columns, order), rows(joined_to, ("arrow",), order), strict=True
        ):
            said = f'"kind":"{kinds.get(kind, kind)}"' + (f',"bytes":{size}' if size else "")
            track = self._tracks.queue(pid, device, stream)
            yield begin, -end, _SLICE, track, f',"cat":"activity","name":{self._name(name)},"args":{{{said}}}}}'
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
        """What was sampled of processes and the machine: levels, not what only grows."""
        kept = {
            number: name
            for number, name in enumerate(self._run.names)
            if name in SAMPLE_NAMES and not name.startswith("thread.") and not name.endswith(_CUMULATIVE)
        }
        table = self._run.samples[np.isin(self._run.samples["name"], list(kept))]
        order = np.argsort(table["time"], kind="stable")
        for when, pid, tid, name, value in rows(table, ("time", "pid", "tid", "name", "value"), order):
            title = f"{kept[name]} {tid}" if kept[name].startswith("gpu.") else kept[name]
            owner = self._tracks.process(pid) if pid else self._tracks.machine()
            yield from self._counter(when, owner, json.dumps(f"{title} ({SAMPLE_NAMES[kept[name]][0]})"), value)

    def _counter(self, when: int, owner: int, name: str, value: float) -> Iterator[_Item]:
        if math.isfinite(value):
            yield when, -when, _EVENT, "", f'"ph":"C","pid":{owner},"name":{name},"args":{{"value":{value!r}}}}}'
        else:
            self._unwritable += 1

    def _stacks(self, table: Table, pid: int, tid: int) -> Iterator[_Item]:
        """Samples of one thread as a chart: a frame that stays from one sample to the next is one slice."""
        track = self._tracks.stacks(pid, tid)
        shown: tuple[Site, ...] = ()
        until = 0
        for begin, end, stack in rows(table, ("begin", "end", "stack"), outer_first(table)):
            frames = self._run.stack_frames[stack]
            same = _same(shown, frames) if begin <= until else 0
            closing = min(begin, until)
            yield from ((closing, -closing, _EVENT, track, f'"ph":"E",{track}}}') for _ in shown[same:])
            yield from ((begin, -begin, _EVENT, track, _frame(site, track)) for site in frames[same:])
            shown, until = frames, max(until, end)
        yield from ((until, -until, _EVENT, track, f'"ph":"E",{track}}}') for _ in shown)

    def _name(self, number: int) -> str:
        return self._names[number] if 0 <= number < len(self._names) else '"(unknown)"'


def _same(before: tuple[Site, ...], after: tuple[Site, ...]) -> int:
    """How many frames, from the outermost on, the two stacks share."""
    for depth, (one, other) in enumerate(zip(before, after, strict=False)):
        if one != other:
            return depth
    return min(len(before), len(after))


def _frame(site: Site, track: str) -> str:
    at = json.dumps(f"{site.file}:{site.line}")
    return f'"ph":"B",{track},"cat":"stack","name":{json.dumps(site.function or site.file)},"args":{{"at":{at}}}}}'


def _joins(table: Table, other: Table) -> Table:
    """Which rows an arrow ends at: the first of each correlation that the other table has too. A column `arrow`.

    One call may cause several activities, and a wait may name what it waited for; an arrow has one end on each side.
    """
    own, theirs = len(table), len(other)
    pids, correlations = (
        np.unique(np.concatenate([table[name], other[name]]), return_inverse=True)[1] for name in ("pid", "correlation")
    )
    keys = pids * (own + theirs) + correlations  # numbers of values, not values: any process, any correlation
    order = np.argsort(table["begin"], kind="stable")
    first = np.zeros(own, np.bool_)
    first[order[np.unique(keys[:own][order], return_index=True)[1]]] = True
    both = first & np.isin(keys[:own], keys[own:]) & (table["correlation"] != 0)
    arrows: Table = both.view(np.dtype([("arrow", np.bool_)]))
    return arrows
