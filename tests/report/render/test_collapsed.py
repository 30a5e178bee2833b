"""Collapsed stacks: a line a stack with its microseconds, threads apart on request, nothing that breaks a line."""

from __future__ import annotations

import pytest

from profiler.core.errors import ProfilerError
from profiler.report.render import collapsed
from profiler.run.model import Run, Site
from tests.recorded.builders import MS, PID, TID, US, RunBuilder


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
    text = "".join(collapsed.render(run, threads=threads))
    assert text.endswith("\n")
    pairs = [line.rpartition(" ") for line in text.splitlines()]
    return {stack: int(number) for stack, _, number in pairs}


def test_the_same_stack_is_one_line(run: Run) -> None:
    assert lines(run) == {
        "main (t.py:1);f (t.py:2)": 46,
        "main (t.py:1)": 10,
        "odd (o%0A%3B.py:3)": 7,
    }, "40.6 µs on one thread and 5 µs on another; what rounds to nothing is left out"


def test_threads_can_stand_before(run: Run) -> None:
    assert lines(run, threads=True) == {
        f"a%3Bb;thread {TID};main (t.py:1);f (t.py:2)": 41,
        f"a%3Bb;thread {TID};main (t.py:1)": 10,
        "a%3Bb;main;main (t.py:1);f (t.py:2)": 5,
        "a%3Bb;main;odd (o%0A%3B.py:3)": 7,
    }


def test_without_stacks_there_is_one_error() -> None:
    with pytest.raises(ProfilerError, match="no stack samples"):
        collapsed.render(RunBuilder().build())
