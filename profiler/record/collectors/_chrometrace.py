"""py-spy's chrome trace -> spans of stacks per thread: the one of its formats that keeps the time of each change.

Checked against py-spy 0.4.3: with --threads the outermost frame is `thread (NATIVE ID): NAME`; `ts` counts
microseconds from its start; at each sample in which a thread's stack differs from the one before, frames that went
give an E event and frames that came a B event. Samples with the same stack leave no event, so a span may stand for
several samples. (`raw` has no times; `speedscope` numbers the samples but has no times; a thread that is gone keeps its
last stack until the trace ends: the caller cuts it.)
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from profiler.run.store import Frame

_THREAD: Final = re.compile(r"thread \((\d+)\)")
# A span counts as on a CPU (or as idle) when at least this share of the time around it was (was not); between: unknown.
_SURE: Final = 0.9
Polls = Sequence[tuple[int, Mapping[int, int]]]
"""Readings of thread clocks: (ns, {tid: CPU ns so far}), in order of time."""


class Span(NamedTuple):
    """A row of the stacks table."""

    begin: int
    end: int
    pid: int
    tid: int
    frames: tuple[Frame, ...]
    active: int


def spans(events: Sequence[Mapping[str, Any]], start: int, polls: Polls) -> list[Span]:
    """Spans of all threads; `start` is the time (ns) of the trace's zero."""
    open_stacks: dict[int, list[Mapping[str, Any]]] = {}
    since: dict[int, int] = {}
    found: list[Span] = []
    polls = polls if _same_numbers(events, polls) else ()
    times = [when for when, _ in polls]
    for event in events:
        if event["ph"] not in "BE":
            continue
        key, when = event["tid"], int(event["ts"])
        stack = open_stacks.setdefault(key, [])
        if stack and when > since[key]:
            span = _span(stack, start + since[key] * 1000, start + when * 1000)
            if span:
                found += _judged(span, polls, times)
        since[key] = when
        if event["ph"] == "B":
            stack.append(event)
        elif stack:
            stack.pop()
    return found


def _same_numbers(events: Iterable[Mapping[str, Any]], polls: Polls) -> bool:
    """Whether threads have the numbers of the trace here too: those of a container's process are its own."""
    named = {int(found[1]) for event in events if (found := _THREAD.match(event["name"]))}
    return not polls or any(not named.isdisjoint(clocks) for _, clocks in polls)


def _span(stack: Sequence[Mapping[str, Any]], begin: int, end: int) -> Span | None:
    """The stack as a span; None for a thread without a frame of Python."""
    thread = _THREAD.match(stack[0]["name"])
    if thread is None or len(stack) < 2:
        return None
    frames = tuple((event["args"]["filename"], int(event["args"]["line"] or 0), event["name"]) for event in stack[1:])
    return Span(begin, end, int(stack[0]["pid"]), int(thread[1]), frames, -1)


def _judged(span: Span, polls: Polls, times: Sequence[int]) -> list[Span]:
    """The span with `active` set from the thread clocks around it, and cut where the thread was seen to be gone."""
    last = bisect_left(times, span.begin)
    while last < len(polls):
        when, clocks = polls[last]
        if span.tid not in clocks:
            end = min(span.end, when)
            return [span._replace(end=end)] if end > span.begin else []
        if when >= span.end:
            break
        last += 1
    first = max(0, bisect_right(times, span.begin) - 1)
    last = min(last, len(polls) - 1)
    if last <= first or span.tid not in polls[first][1]:
        return [span]
    used = polls[last][1][span.tid] - polls[first][1][span.tid]
    share = used / (times[last] - times[first])
    return [span._replace(active=1 if share >= _SURE else 0 if share <= 1 - _SURE else -1)]
