"""A part of a run: processes and threads."""

from __future__ import annotations

import numpy as np
import pytest

from profiler.core.errors import ProfilerError
from profiler.run.filter import filter_run, group_rows, rows_by
from profiler.run.model import Run
from tests.recorded.builders import PID, TID, RunBuilder, dtype_of


@pytest.fixture
def run() -> Run:
    builder = RunBuilder()
    builder.steps(3, 10)
    builder.step(0, 30, pid=7, tid=7)
    builder.region("early", 0, 5)
    builder.region("across", 5, 15)
    builder.region("late", 20, 30, tid=9)
    builder.sample("machine.load", 12, 1.0, pid=0)
    builder.sample("process.rss", 12, 1.0)
    builder.sample("gpu.util", 12, 1.0, pid=0, tid=1)
    builder.sample("process.rss", 25, 1.0, pid=7)
    return builder.build()


def regions(run: Run) -> list[str]:
    return [run.names[number] for number in run.regions["name"]]


def test_processes_keep_what_belongs_to_the_machine(run: Run) -> None:
    found = filter_run(run, pids=[7])
    assert set(found.steps["pid"].tolist()) == {7}
    assert regions(found) == []
    assert [run.names[number] for number in found.samples["name"]] == ["machine.load", "gpu.util", "process.rss"]
    assert len(run.steps) == 4, "the run itself stays as it is"


def test_threads_keep_what_belongs_to_none(run: Run) -> None:
    found = filter_run(run, tids=[9])
    assert regions(found) == ["late"]
    assert len(found.steps) == 0
    assert len(found.samples) == 4


def test_what_is_not_there_is_an_error_that_says_what_is(run: Run) -> None:
    with pytest.raises(ProfilerError, match=f"no process 5; it has 7, {PID}"):
        filter_run(run, pids=[7, 5])
    with pytest.raises(ProfilerError, match=f"no thread 5; it has 7, 9, {TID}"):
        filter_run(run, tids=[5])


def test_every_row_comes_once_in_its_order() -> None:
    rows = np.zeros(1000, dtype_of("stacks"))
    rows["pid"], rows["tid"], rows["begin"] = np.arange(1000) % 3, np.arange(1000) % 7, np.arange(1000)
    found = list(group_rows(rows, "pid", "tid"))
    assert [(own["pid"][0], own["tid"][0]) for own in found] == [(pid, tid) for pid in range(3) for tid in range(7)]
    for own in found:
        same = (rows["pid"] == own["pid"][0]) & (rows["tid"] == own["tid"][0])
        assert (own == rows[same]).all()


def test_no_rows_and_one_group() -> None:
    rows = np.zeros(3, dtype_of("stacks"))
    assert list(group_rows(rows[:0], "pid")) == []
    [whole] = group_rows(rows, "pid")
    assert whole is rows
    assert list(rows_by(rows, "tid")) == [0]
