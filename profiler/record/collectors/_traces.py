"""Converts py-spy's two formats into spans of stacks per thread. Checked against py-spy 0.4.3.

Chrome trace, for windows of all threads: the only format that keeps the time of each change. With --threads the
outermost frame is `thread (NATIVE ID): NAME`; `ts` counts microseconds from the start; at each sample in which a
thread's stack differs from the one before, frames that went give an E event and frames that came a B event. Samples
with the same stack leave no event, so a span may stand for several samples. A thread that has ended keeps its last
stack until the trace ends.

Speedscope, for windows of the GIL's holder: the only format that tells how often, since the chrome trace leaves no
mark where nobody held the GIL. It has a profile for each thread with its samples in order of time, but without times.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from profiler.core.procfs import ThreadTimes
from profiler.run.store import Frame

_THREAD: Final = re.compile(r"thread \((\d+)\)")
_CLEAR_SHARE: Final = 0.9
"""A span counts as active when at least this share of the time around it was (idle: was not); between: unknown."""
ThreadClocks = Sequence[tuple[int, Mapping[int, int]]]
"""Readings of thread clocks in order of time: (ns, {tid: ns so far in which it was on a core, or could have run})."""


class Span(NamedTuple):
    """A row of the stacks table."""

    begin: int
    end: int
    pid: int
    tid: int
    frames: tuple[Frame, ...]
    active: int
    """1 on a core, or without one though it could have run; 0 blocked; -1 unknown."""


def active_clocks(readings: Sequence[tuple[int, Mapping[int, ThreadTimes]]]) -> ThreadClocks:
    """Return the active time of each thread so far, at each reading.

    The kernel adds a thread's wait for a core when it gets one. So what a reading shows beyond the time since the
    reading before belongs before that.
    """
    clocks = [(when, {tid: used.cpu_ns + used.wait_ns for tid, used in threads.items()}) for when, threads in readings]
    for (before, early), (after, late) in zip(clocks[-2::-1], clocks[:0:-1], strict=True):
        for tid in early.keys() & late.keys():
            early[tid] = max(early[tid], late[tid] - (after - before))
    return clocks


def spans_of_all_threads(events: Sequence[Mapping[str, Any]], start: int, clocks: ThreadClocks) -> list[Span]:
    """Spans of a chrome trace; `start` is the time (ns) of its zero. They are cut where a thread was gone."""
    open_stacks: dict[int, list[Mapping[str, Any]]] = {}
    since: dict[int, int] = {}
    spans: list[Span] = []
    clocks = clocks if _has_same_thread_ids(events, clocks) else ()
    times = [when for when, _ in clocks]
    for event in events:
        if event["ph"] not in "BE":
            continue
        key, when = event["tid"], int(event["ts"])
        stack = open_stacks.setdefault(key, [])
        if stack and when > since[key]:
            span = _span(stack, start + since[key] * 1000, start + when * 1000)
            if span:
                spans += _with_activity(span, clocks, times)
        since[key] = when
        if event["ph"] == "B":
            stack.append(event)
        elif stack:
            stack.pop()
    return spans


def _has_same_thread_ids(events: Sequence[Mapping[str, Any]], clocks: ThreadClocks) -> bool:
    """Tell whether the trace has the thread ids of this process's view: py-spy shows those of a container's own
    view."""
    named = {int(match[1]) for event in events if (match := _THREAD.match(event["name"]))}
    return not clocks or any(not named.isdisjoint(threads) for _, threads in clocks)


def _span(stack: Sequence[Mapping[str, Any]], begin: int, end: int) -> Span | None:
    """Return the stack as a span; None for a thread without a frame of Python."""
    thread = _THREAD.match(stack[0]["name"])
    if thread is None or len(stack) < 2:
        return None
    frames = tuple((event["args"]["filename"], int(event["args"]["line"] or 0), event["name"]) for event in stack[1:])
    return Span(begin, end, int(stack[0]["pid"]), int(thread[1]), frames, -1)


def _with_activity(span: Span, clocks: ThreadClocks, times: Sequence[int]) -> list[Span]:
    """Return the span with `active` from the clocks around it, cut at the first reading in which its thread is
    missing."""
    last = bisect_left(times, span.begin)
    while last < len(clocks):
        when, threads = clocks[last]
        if span.tid not in threads:
            end = min(span.end, when)
            return [span._replace(end=end)] if end > span.begin else []
        if when >= span.end:
            break
        last += 1
    first = max(0, bisect_right(times, span.begin) - 1)
    last = min(last, len(clocks) - 1)
    if last <= first or span.tid not in clocks[first][1]:
        return [span]
    used = clocks[last][1][span.tid] - clocks[first][1][span.tid]
    share = used / (times[last] - times[first])
    return [span._replace(active=1 if share >= _CLEAR_SHARE else 0 if share <= 1 - _CLEAR_SHARE else -1)]


def spans_of_gil_holder(document: Mapping[str, Any], pid: int, begin: int, observed: int, ticks: int) -> list[Span]:
    """Return a span for each sample, as long as the time between two: together they are the time in which the GIL was
    held.

    Samples are spread evenly over the window; their number is exact.

    :param begin: ns at which the window began.
    :param observed: ns that it lasted.
    :param ticks: how often py-spy looked, with a holder or without one.
    """
    period = observed // max(1, ticks)
    frames = [(frame["file"] or "", int(frame["line"] or 0), frame["name"]) for frame in document["shared"]["frames"]]
    spans: list[Span] = []
    for profile in document["profiles"]:
        stacks = [tuple(frames[index] for index in sample) for sample in profile["samples"] if len(sample) > 1]
        thread = _THREAD.match(stacks[0][0][2]) if stacks else None
        if thread is None:  # a thread without a frame of Python
            continue
        for number, stack in enumerate(stacks):
            middle = begin + (2 * number + 1) * observed // (2 * len(stacks))
            first = middle - period // 2
            spans.append(Span(first, first + period, pid, int(thread[1]), stack[1:], 1))
    return sorted(spans)
