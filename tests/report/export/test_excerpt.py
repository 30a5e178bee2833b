"""The stretch of a run that a page carries: all of it where it fits, else steps around the middle, never too large."""

from __future__ import annotations

import gzip
import json
from typing import Any

import numpy as np
import pytest

from profiler.analyse.model import Timeline
from profiler.core.notice import Notice
from profiler.report.export import excerpt
from tests.recorded.builders import MS, RunBuilder


def steps_in(found: Timeline) -> list[int]:
    events: list[dict[str, Any]] = json.loads(gzip.decompress(found.data))["traceEvents"]
    return [event["args"]["index"] for event in events if event.get("cat") == "step"]


def many(steps: int, regions: int) -> RunBuilder:
    """So many steps of 10 ms, each with so many regions of a time of their own, which do not compress well."""
    builder = RunBuilder()
    builder.steps(steps, 10 * MS)
    begin = np.arange(steps * regions) * (10 * MS // regions)
    jitter = np.random.default_rng(1).integers(1, 10 * MS // regions, len(begin))
    names = [builder.name(f"region {number}") for number in range(50)]
    builder.bulk("regions", len(begin), begin=begin, end=begin + jitter, name=np.resize(names, len(begin)))
    return builder


def test_a_small_run_is_carried_whole() -> None:
    found = excerpt.timeline_excerpt(many(20, 3).build())
    assert (found.window, found.whole, found.reason) == ("all 20 steps, 200 ms", True, None)
    assert steps_in(found) == list(range(20))


def test_of_a_large_run_steps_around_its_middle() -> None:
    found = excerpt.timeline_excerpt(many(1000, 100).build())
    assert len(found.data) <= excerpt.MAX_BYTES
    assert not found.whole
    carried = steps_in(found)
    first, last = carried[0], carried[-1]
    assert carried == list(range(first, last + 1))
    assert len(carried) > 100, "it is not worth opening"
    assert abs((first + last) / 2 - 499.5) <= 2, (first, last)
    assert found.window.startswith(f"steps {first + 1:,} to {last + 1:,} of 1,000, "), found.window


def test_a_step_too_large_for_a_page_is_a_reason() -> None:
    found = excerpt.timeline_excerpt(many(2, 60_000).build())
    assert found.data == b""
    assert found.reason.code == "trace-too-large"


def test_without_steps_it_is_time() -> None:
    builder = RunBuilder(level="standard")
    builder.stack(["t.py:1:main"], 0, 50 * MS)
    found = excerpt.timeline_excerpt(builder.build())
    assert (found.window, found.whole) == ("the whole run, 50.0 ms", True)
    assert b"main" in gzip.decompress(found.data)


def test_an_empty_run_has_none_and_says_why() -> None:
    assert excerpt.timeline_excerpt(RunBuilder().build()) == Timeline(reason=Notice("no-records"))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_halves_stay_around_the_middle(count: int) -> None:
    first, last = 0, count
    while last - first > 1:
        middle = (first + last) / 2
        first, last = excerpt.middle_half(first, last)
        assert abs((first + last) / 2 - middle) <= 0.5
    assert last - first == 1
