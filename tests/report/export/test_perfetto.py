"""The Chrome trace: read back, with every slice nested and every time exact to the nanosecond."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from profiler.core.errors import ProfilerError
from profiler.report.export import perfetto
from profiler.run.model import Run
from profiler.run.tables import ActivityKind, CallKind
from tests.recorded.builders import MS, PID, TID, RunBuilder

BEGIN = 987_654_321_012_345
"""Begin of the run: about the clock of a machine that has run for eleven days."""


def read(run: Run) -> dict[str, Any]:
    """The trace of `run`, its times as ns: decimals are read exactly."""
    trace: dict[str, Any] = json.loads("".join(perfetto.render(run)), parse_float=Decimal)
    for event in trace["traceEvents"]:
        if "ts" in event:
            assert event["ts"] * 1000 % 1 == 0, event
            event["ts"] = int(event["ts"] * 1000)
    return trace


def begun(builder: RunBuilder) -> Run:
    """The run of `builder`, begun at BEGIN."""
    run = builder.build()
    return replace(run, info=replace(run.info, begin=BEGIN))


def slices(trace: dict[str, Any]) -> list[tuple[str, int, int, int, dict[str, Any]]]:
    """(name, begin, end, depth, the event) of every slice; begins and ends must match on each track."""
    waiting: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    found = []
    for event in trace["traceEvents"]:
        track = event["pid"], event.get("tid", 0)
        if event["ph"] == "B":
            waiting[track].append(event)
        elif event["ph"] == "E":
            begun = waiting[track].pop()
            found.append((begun["name"], begun["ts"], event["ts"], len(waiting[track]), begun))
    assert not any(waiting.values()), "a slice never ends"
    return found


def titles(trace: dict[str, Any], what: str) -> dict[tuple[int, int], str]:
    return {
        (event["pid"], event["tid"] if what == "thread_name" else 0): event["args"]["name"]
        for event in trace["traceEvents"]
        if event["name" if "name" in event else "ph"] == what
    }


def arrows(run: Run) -> list[dict[int, dict[str, Any]]]:
    """The beginnings of all arrows by their numbers, and the ends; no number is there twice."""
    events = read(run)["traceEvents"]
    ends = [{event["id"]: event for event in events if event["ph"] == phase} for phase in "sf"]
    assert sum(map(len, ends)) == sum(event["ph"] in "sf" for event in events)
    return ends


@pytest.fixture
def builder() -> RunBuilder:
    made = RunBuilder(label="as-found")
    for index in range(3):
        at = BEGIN + index * (10 * MS + 1)
        made.step(at, at + 10 * MS + 1, tokens=100, warmup=index == 0)
        made.region("tokenize", at, at + 2 * MS + 333)
        made.region("encode <b>", at, at + MS + 5, depth=1)
        made.call(
            CallKind.H2D, at + 3 * MS, at + 4 * MS + 7, blocked=5, site="my train.py:88:main", bytes=4096,
            correlation=index + 1,
        )  # fmt: skip
        made.activity(ActivityKind.H2D, at + 3 * MS + 9, at + 5 * MS, name="copy", correlation=index + 1, stream=2)
        made.counter("syncs", 2, step=index, time=at + 10 * MS)
        made.gauge("loss", 0.1 * index, step=index, time=at + 10 * MS)
    return made


def test_every_slice_is_exact_and_in_its_place(builder: RunBuilder) -> None:
    trace = read(begun(builder))
    found = slices(trace)
    assert Counter(name for name, *_ in found) == {
        **{f"step {index}": 1 for index in range(3)}, "tokenize": 3, "encode <b>": 3, "h2d": 3, "copy": 3
    }  # fmt: skip
    second = {name: rest for name, *rest in found if 10 * MS < rest[0] < 20 * MS + 2}
    at = 10 * MS + 1
    assert second["step 1"][:3] == [at, 2 * at, 0]
    assert second["tokenize"][:3] == [at, at + 2 * MS + 333, 0]
    assert second["encode <b>"][:3] == [at, at + MS + 5, 1], "what begins with another and ends sooner lies in it"
    assert second["copy"][:3] == [at + 3 * MS + 9, at + 5 * MS, 0]
    assert second["h2d"][3]["args"] == {
        "kind": "h2d", "site": "my train.py:88 (main)", "bytes": 4096, "blocked_us": Decimal("0.005")
    }  # fmt: skip
    assert trace["otherData"]["begin_ns"] == str(BEGIN)
    times = [event["ts"] for event in trace["traceEvents"] if "ts" in event]
    assert times == sorted(times)


def test_an_arrow_leads_from_the_call_to_its_activity(builder: RunBuilder) -> None:
    builder.call(CallKind.LAUNCH, BEGIN + 40 * MS, BEGIN + 41 * MS, correlation=77)  # whose kernel was not seen
    builder.call(CallKind.SYNC, BEGIN + 42 * MS, BEGIN + 43 * MS, correlation=3)  # waits for the copy of call 3
    builder.activity(ActivityKind.KERNEL, BEGIN + 50 * MS, BEGIN + 51 * MS, correlation=3)  # of call 3 too
    starts, ends = arrows(begun(builder))
    assert starts.keys() == ends.keys()
    assert len(starts) == 3
    for number, start in starts.items():
        assert (start["pid"], start["tid"]) == (PID, TID)
        assert (ends[number]["ts"], ends[number]["bp"]) == (start["ts"] + 9, "e")


@pytest.mark.parametrize("correlation", [(1 << 62) + 1, (1 << 41) + 3, -5])
def test_arrows_of_any_correlation_stay_apart(builder: RunBuilder, correlation: int) -> None:
    for pid in (PID + 1, 1 << 40):
        builder.call(CallKind.LAUNCH, BEGIN, BEGIN + MS, correlation=correlation, pid=pid)
        builder.activity(ActivityKind.KERNEL, BEGIN + MS, BEGIN + 2 * MS, correlation=correlation, pid=pid)
    starts, ends = arrows(begun(builder))
    assert starts.keys() == ends.keys()
    assert len(starts) == 5
    assert max(starts) < 1 << 53, "which JSON holds exactly"


def test_tracks_have_names(builder: RunBuilder) -> None:
    builder.sample("thread.name:pin memory", BEGIN, 1, tid=TID)
    builder.sample("gpu.util", BEGIN, 0.5, pid=0, tid=1)
    trace = read(begun(builder))
    assert sorted(titles(trace, "process_name").values()) == ["as-found", "device 0 of as-found", "machine"]
    threads = titles(trace, "thread_name")
    assert threads[PID, TID] == "pin memory"
    assert sorted(threads.values()) == ["pin memory", "queue 2", "steps"]


def test_counters(builder: RunBuilder) -> None:
    builder.sample("process.rss", BEGIN + 5, 1e9)
    builder.sample("process.cpu_s", BEGIN + 5, 3.0)
    builder.sample("gpu.util", BEGIN + 6, 0.25, pid=0, tid=1)
    builder.gauge("loss", float("nan"), step=2, time=BEGIN + 7)
    trace = read(begun(builder))
    counters = [(e["name"], e["ts"], float(e["args"]["value"])) for e in trace["traceEvents"] if e["ph"] == "C"]
    assert ("process.rss (bytes)", 5, 1e9) in counters
    assert ("gpu.util 1 (share)", 6, 0.25) in counters
    assert [value for name, _, value in counters if name == "loss"] == [0.0, 0.1, 0.2], "NaN is no JSON"
    assert not [name for name, *_ in counters if name.startswith("process.cpu_s")], "it only grows"
    assert trace["otherData"]["values that are no finite number, left out"] == 1


def test_what_goes_on_beyond_what_holds_it_is_cut_and_counted() -> None:
    builder = RunBuilder()
    builder.region("outer", 0, 100)
    builder.region("crosses", 50, 150)
    builder.region("next", 100, 120)
    trace = read(builder.build())
    found = [(name, begin, end) for name, begin, end, *_ in slices(trace)]
    assert found == [("crosses", 50, 100), ("outer", 0, 100), ("next", 100, 120)]
    assert trace["otherData"]["slices cut at the end of what holds them"] == 1


def test_stack_samples_are_a_chart_of_their_own() -> None:
    builder = RunBuilder()
    builder.stack(["t.py:1:main", "t.py:2:f"], 0, 10)
    builder.stack(["t.py:1:main", "t.py:2:f"], 10, 20)
    builder.stack(["t.py:1:main", "t.py:3:f", "u.py:9:g"], 20, 30)
    builder.stack(["t.py:1:main"], 50, 60)  # after a gap: another window
    trace = read(builder.build())
    found = sorted((begin, -end, name, depth, e["args"]["at"]) for name, begin, end, depth, e in slices(trace))
    assert found == [
        (0, -30, "main", 0, "t.py:1"),
        (0, -20, "f", 1, "t.py:2"),
        (20, -30, "f", 1, "t.py:3"),
        (20, -30, "g", 2, "u.py:9"),
        (50, -60, "main", 0, "t.py:1"),
    ]
    assert list(titles(trace, "thread_name").values()) == [f"thread {TID}: sampled stacks"]


def test_a_large_run_is_written_in_pieces_and_stays_in_order() -> None:
    count = 10_000
    begin = np.arange(count) * 1000
    builder = RunBuilder()
    builder.bulk("regions", count, begin=begin, end=begin + 1000, name=builder.name("r"))
    builder.bulk("calls", count, begin=begin + 1, end=begin + 999, name=builder.name("c"), site=-1)
    pieces = list(perfetto.render(builder.build()))
    assert len(pieces) > 12
    assert max(map(len, pieces)) < 1_000_000
    events = json.loads("".join(pieces))["traceEvents"]
    assert sum(event["ph"] == "B" for event in events) == 2 * count
    assert all(event["ts"] <= later["ts"] for event, later in pairwise(events[: 4 * count]))


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0.000"), (1, "0.001"), (123_456, "123.456"), (-1, "-0.001"), (2**62 + 1, "4611686018427387.905")],
)
def test_microseconds_are_exact(ns: int, text: str) -> None:
    assert perfetto.microseconds(ns) == text


def test_an_empty_run_is_one_error_before_anything_is_written() -> None:
    with pytest.raises(ProfilerError, match="nothing to export"):
        perfetto.render(RunBuilder().build())
