"""py-spy's trace -> spans: nesting, line changes, threads, idle or active, and threads that end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from profiler.core.procfs import ThreadTimes
from profiler.record.collectors._pyspy import Span, active_clocks
from profiler.record.collectors._pyspy import spans_of_all_threads as spans

START = 1_000_000_000
MS = 1_000_000


MAIN = "thread (70)"


def event(phase: str, ms: float, name: str, key: int, line: int = 0) -> dict[str, Any]:
    place = {"filename": "" if name.startswith("thread") else "a.py", "line": line}
    return {"ph": phase, "ts": int(ms * 1000), "name": name, "pid": 7, "tid": key, "args": place}


def begin(ms: float, *frames: tuple[str, int], key: int = 1) -> Iterator[dict[str, Any]]:
    return (event("B", ms, name, key, line) for name, line in frames)


def end(ms: float, *names: str, key: int = 1) -> Iterator[dict[str, Any]]:
    return (event("E", ms, name, key) for name in names)


def at(ms: float) -> int:
    return START + int(ms * MS)


def test_stacks_change_and_nest() -> None:
    events = [
        *begin(10, ("thread (70): MainThread", 0), ("main", 5), ("inner", 9)),
        *end(20, "inner"),
        *begin(20, ("inner", 10)),
        *end(30, "inner"),
        *end(50, "main", "thread (70): MainThread"),
    ]
    main, nine, ten = ("a.py", 5, "main"), ("a.py", 9, "inner"), ("a.py", 10, "inner")
    assert spans(events, START, []) == [
        Span(at(10), at(20), 7, 70, (main, nine), -1),
        Span(at(20), at(30), 7, 70, (main, ten), -1),
        Span(at(30), at(50), 7, 70, (main,), -1),
    ]


def test_threads_do_not_mix() -> None:
    events = [
        {"ph": "M", "name": "thread_name"},
        *begin(1, (MAIN, 0), ("f", 1)),
        *begin(2, ("thread (71): w", 0), ("g", 2), key=2),
        *begin(3, ("thread (72)", 0), key=3),  # without frames: it is left out
        *end(5, "f", MAIN),
        *end(5, "thread (72)", key=3),
        *end(6, "g", "thread (71): w", key=2),
    ]
    assert [(span.tid, span.begin, span.end, span.frames[0][2]) for span in spans(events, START, [])] == [
        (70, at(1), at(5), "f"),
        (71, at(2), at(6), "g"),
    ]


def test_active_from_thread_clocks() -> None:
    events = [*begin(0, (MAIN, 0))]
    for number, name in enumerate(("busy", "blocked", "half")):
        events += [*begin(100 * number, (name, number + 1)), *end(100 * number + 100, name)]
    clocks = [(at(0), {70: 0}), (at(100), {70: 99 * MS}), (at(200), {70: 100 * MS}), (at(300), {70: 150 * MS})]
    found = {span.frames[0][2]: span.active for span in spans([*events, *end(300, MAIN)], START, clocks)}
    assert found == {"busy": 1, "blocked": 0, "half": -1}


def test_a_wait_for_a_core_counts_when_it_was_and_not_when_it_ended() -> None:
    """The kernel adds the wait of 150 ms, which began at 100 ms, when the thread gets a core."""
    waits = [(at(0), 0, 0), (at(100), 50, 0), (at(200), 50, 0), (at(300), 100, 150)]
    readings = [(when, {70: ThreadTimes(cpu * MS, wait * MS)}) for when, cpu, wait in waits]
    assert [clocks[70] // MS for _, clocks in active_clocks(readings)] == [0, 50, 150, 250]


def test_spans_of_an_ended_thread_end_where_its_clock_is_missing() -> None:
    events = [
        *begin(0, ("thread (70)", 0), ("f", 1)),
        *end(500, "f", "thread (70)"),
        *begin(160, ("thread (71)", 0), ("g", 1), key=2),
        *end(500, "g", "thread (71)", key=2),
    ]
    clocks = [(at(0), {70: 0}), (at(100), {70: 100 * MS}), (at(150), {}), (at(500), {})]
    assert [(span.tid, span.begin, span.end) for span in spans(events, START, clocks)] == [
        (70, at(0), at(150)),
        (71, at(160), at(500)),
    ]
