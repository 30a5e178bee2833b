"""A timeline has room for the longest operators of torch's trace, with everything around them."""

from __future__ import annotations

import json

import numpy as np

from profiler.report.export import perfetto
from profiler.report.export.perfetto import limit_trace
from profiler.run.model import Run, Traced
from profiler.run.tables import ActivityKind, CallKind
from tests.recorded.builders import PID, TID, US, RunBuilder
from tests.report.export.trace_rules import complaints

FIELDS = [(name, "<i8") for name in ("begin", "end", "pid", "tid", "name", "annotation")]


def traced(*operators: tuple[int, int]) -> Traced:
    """Operators from and to these µs; a name for each."""
    rows = [(begin * US, end * US, PID, TID, number, 0) for number, (begin, end) in enumerate(operators)]
    names = tuple(f"aten::op{number}" for number in range(len(rows)))
    return Traced(np.array(rows, FIELDS), names, frozenset({PID}), ("source-1/kineto.json.gz",))


def launches(count: int) -> Run:
    """Calls of a trace with their kernels, each longer than the one before; and a hook's own, which are short."""
    builder = RunBuilder(level="full")
    for number in range(1, count + 1):
        at = number * 1000 * US
        builder.call(CallKind.LAUNCH, at, at + number * US, correlation=number)
        builder.activity(ActivityKind.KERNEL, at + 5 * US, at + 5 * US + 3 * number * US, correlation=number)
        builder.call(CallKind.SYNC, at + 900 * US, at + 900 * US + 1)
    return builder.build()


NEST = ((0, 100), (10, 60), (20, 30), (70, 90), (200, 205), (300, 340))


def test_what_there_is_room_for_stays_as_it_is() -> None:
    run, operators = launches(3), traced(*NEST)
    kept_run, kept, left = limit_trace(run, operators, 6)
    assert left == ()
    assert kept.operators is operators.operators
    assert kept_run.calls is run.calls
    assert kept_run.activities is run.activities


def test_the_longest_operators_stay_with_what_holds_them() -> None:
    _, kept, (left,) = limit_trace(launches(1), traced(*NEST), 3)
    assert [operators // US for operators in kept.operators["begin"].tolist()] == [0, 10, 300]
    assert (left.shown, left.total, left.longest_ns) == (3, 6, 20 * US)
    assert left.describe() == "3 of 6 torch operators, the shortest: none took more than 20.0 µs"


def test_calls_and_activities_of_the_trace_are_held_too_and_arrows_still_have_two_ends() -> None:
    run, operators, left = limit_trace(launches(9), traced((0, 1)), 4)
    assert [one.kind for one in left] == ["runtime calls of torch's trace", "device activities of torch's trace"]
    assert sorted(run.calls["correlation"].tolist()) == [0] * 9 + [6, 7, 8, 9], "a hook's own calls stay"
    assert run.activities["correlation"].tolist() == [6, 7, 8, 9]
    text = "".join(perfetto.render(run, operators, left))
    assert complaints(text) == []
    assert json.loads(text)["otherData"]["left out of torch's trace"] == [one.describe() for one in left]
    assert text.count('"ph":"s"') == text.count('"ph":"f"') == 4


def test_a_process_without_a_trace_keeps_everything() -> None:
    run = launches(9)
    other = Traced(np.empty(0, FIELDS), (), frozenset({PID + 1}), ())
    kept, _, left = limit_trace(run, other, 1)
    assert left == ()
    assert kept.calls is run.calls


def test_operators_nest_on_a_track_beside_their_thread() -> None:
    text = "".join(perfetto.render(launches(1), traced(*NEST)))
    assert complaints(text) == []
    events = json.loads(text)["traceEvents"]
    track = next(
        event["tid"]
        for event in events
        if event.get("name") == "thread_name" and event["args"]["name"] == f"thread {TID}: torch operators"
    )
    phases = [(event["ph"], event["ts"]) for event in events if event.get("tid") == track and event["ph"] in "BE"]
    assert phases[:6] == [("B", 0), ("B", 10), ("B", 20), ("E", 30), ("E", 60), ("B", 70)]
