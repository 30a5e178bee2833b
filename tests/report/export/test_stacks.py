"""Stack samples in the formats of speedscope.app, checked against its schema, and of flamegraph.pl."""

from __future__ import annotations

import json
from typing import Any

import pytest

from profiler.core.errors import ProfilerError
from profiler.report.export.stacks import collapsed, speedscope
from profiler.run.model import CollectorStatus, Run, Site
from tests.recorded.builders import MS, PID, TID, US, RunBuilder


@pytest.fixture
def document() -> dict[str, Any]:
    builder = RunBuilder(label="as-found")
    builder.step(0, 30 * MS)
    builder.stack(["t.py:1:main", "t.py:2:f"], 10 * MS, 20 * MS + 1)
    builder.stack(["t.py:1:main"], 0, 10 * MS)
    builder.stack(["t.py:1:main", 'u "x".py:9:g'], 0, 3, tid=PID)
    builder.stack(["w.py:1:worker"], 0, 3, pid=7, tid=7)
    read: dict[str, Any] = json.loads("".join(speedscope(builder.build())))
    return read


def test_the_required_parts_are_there(document: dict[str, Any]) -> None:
    assert document.keys() <= {"$schema", "shared", "profiles", "name", "activeProfileIndex", "exporter"}
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    assert all(isinstance(frame["name"], str) and frame.keys() <= {"name", "file", "line", "col"} for frame in frames)
    assert {"name": "g", "file": 'u "x".py', "line": 9} in frames
    for profile in document["profiles"]:
        assert profile.keys() == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
        assert (profile["type"], profile["unit"]) == ("sampled", "nanoseconds")
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
        assert {index for sample in profile["samples"] for index in sample} <= set(range(len(frames)))


def test_a_profile_for_each_thread_in_order_of_time(document: dict[str, Any]) -> None:
    names = [profile["name"] for profile in document["profiles"]]
    assert names == [f"as-found: main ({PID})", f"as-found: thread {TID} ({TID})", "process 7: main (7)"]
    stepping = document["profiles"][1]
    frames = [frame["name"] for frame in document["shared"]["frames"]]
    stacks = [[frames[index] for index in sample] for sample in stepping["samples"]]
    assert stacks == [["main"], ["main", "f"]], "the outermost frame first, the earlier sample first"
    assert stepping["weights"] == [10 * MS, 10 * MS + 1]


@pytest.mark.parametrize(
    ("builder", "reason"),
    [
        (RunBuilder(level="light"), "record again with --level standard"),
        (
            RunBuilder(collectors=[CollectorStatus("stacks", "unavailable", "ptrace is forbidden")]),
            "ptrace is forbidden",
        ),
        (RunBuilder(), "none were recorded"),
    ],
)
def test_without_stacks_the_reason_is_said(builder: RunBuilder, reason: str) -> None:
    with pytest.raises(ProfilerError, match=reason):
        speedscope(builder.build())
    with pytest.raises(ProfilerError, match=reason):
        collapsed(builder.build())


@pytest.fixture
def run() -> Run:
    builder = RunBuilder(label="a;b")
    builder.step(0, 10 * MS)
    builder.stack(["t.py:1:main", "t.py:2:f"], 0, 10 * US)
    builder.stack(["t.py:1:main"], 10 * US, 20 * US)
    builder.stack(["t.py:1:main", "t.py:2:f"], 20 * US, 50 * US + 600)
    builder.stack(["t.py:1:main", "t.py:2:f"], 0, 5 * US, tid=PID)
    builder.stack([Site("o\n;.py", 3, "odd")], 0, 7 * US, tid=PID)
    builder.stack(["t.py:9:nothing"], 0, 3)
    return builder.build()


def lines(run: Run, *, threads: bool = False) -> dict[str, int]:
    text = "".join(collapsed(run, threads=threads))
    assert text.endswith("\n")
    pairs = [line.rpartition(" ") for line in text.splitlines()]
    return {stack: int(number) for stack, _, number in pairs}


def test_the_same_stack_is_one_line(run: Run) -> None:
    assert lines(run) == {"main (t.py:1);f (t.py:2)": 46, "main (t.py:1)": 10, "odd (o%0A%3B.py:3)": 7}, (
        "40.6 µs on one thread and 5 µs on another; what rounds to nothing is left out"
    )


def test_threads_can_stand_before(run: Run) -> None:
    assert lines(run, threads=True) == {
        f"a%3Bb;thread {TID};main (t.py:1);f (t.py:2)": 41,
        f"a%3Bb;thread {TID};main (t.py:1)": 10,
        "a%3Bb;main;main (t.py:1);f (t.py:2)": 5,
        "a%3Bb;main;odd (o%0A%3B.py:3)": 7,
    }
