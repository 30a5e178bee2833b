"""The file of speedscope.app, held against its schema by hand: a sampled profile a thread, weights that sum."""

from __future__ import annotations

import json
from typing import Any

import pytest

from profiler.core.errors import ProfilerError
from profiler.report.render import speedscope
from profiler.run.model import CollectorStatus
from tests.recorded.builders import MS, PID, TID, RunBuilder


@pytest.fixture
def document() -> dict[str, Any]:
    builder = RunBuilder(label="as-found")
    builder.step(0, 30 * MS)
    builder.stack(["t.py:1:main", "t.py:2:f"], 10 * MS, 20 * MS + 1)
    builder.stack(["t.py:1:main"], 0, 10 * MS)
    builder.stack(["t.py:1:main", 'u "x".py:9:g'], 0, 3, tid=PID)
    builder.stack(["w.py:1:worker"], 0, 3, pid=7, tid=7)
    read: dict[str, Any] = json.loads("".join(speedscope.render(builder.build())))
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
        speedscope.render(builder.build())
