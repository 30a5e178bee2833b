"""Snapshots of a made-up program: rates between readings, roles, ends; and of this very process by /proc."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from profiler.core.live import MAIN, TRAINING, WORKER, Snapshot, StepUse, Watched
from profiler.record.live import NOT_OURS, Live, ProcReader, ThreadRow
from profiler.run.model import StepDefinition, StepKind
from tests.fakes.live import WATCHED, FakeReader, process, thread


class Clock:
    """Gives the seconds that it was told, in ns."""

    def __init__(self, *seconds: float) -> None:
        self._seconds = iter(seconds)

    def __call__(self) -> int:
        return round(next(self._seconds) * 1e9)


class Steps:
    """Says that thread 11 of process 10 closes the steps."""

    def read(self, now: int) -> tuple[StepUse, str]:
        return StepUse(StepDefinition(StepKind.OPTIMIZER, (("SGD",),)), 3, 10.0, 2.0, 0.5, 0.1, pid=10, tid=11), ""


def taken(live: Live) -> Snapshot:
    snapshot = live.snapshot()
    assert snapshot is not None
    return snapshot


def test_cpu_needs_two_readings_and_is_a_rate() -> None:
    reader = FakeReader([process(10, 3.0)], {10: [thread(10, 2.0), thread(11, 1.0)]})
    live = Live(WATCHED, reader, clock=Clock(100, 102))
    first = taken(live)
    assert (first.cpu, first.interval, first.unknown["cpu"]) == (None, None, "needs two readings")
    assert all(use.cpu is None for use in (*first.threads, *first.processes))
    reader.processes = [process(10, 4.0)]
    reader.threads_of[10] = [ThreadRow(10, "python", "R", 2.1, 0.6), thread(11, 1.9)]
    second = taken(live)
    assert (second.interval, second.ran, second.cores, second.rss) == (2.0, 60.0, 4.0, 10_000)
    assert [(use.tid, use.cpu) for use in second.threads] == [(11, pytest.approx(0.45)), (10, pytest.approx(0.05))]
    assert second.threads[1].delayed == pytest.approx(0.3)
    assert second.cpu == pytest.approx(0.5), "of both, the ticks of the process and the sum of its threads, the larger"
    assert second.unknown["steps"] == NOT_OURS
    assert second.unknown["gpus"] == "no GPU here: no driver"


def test_what_is_new_has_used_all_its_cpu_since() -> None:
    reader = FakeReader([process(10, 0.0)], {10: [thread(10, 0.0)]})
    live = Live(WATCHED, reader, clock=Clock(1, 2))
    taken(live)
    reader.processes.append(process(20, 0.7, parent=10, name="pt_data_worker"))
    reader.threads_of[20] = [thread(20, 0.7, name="pt_data_worker")]
    found = taken(live)
    assert found.cpu == pytest.approx(0.7)
    assert [(worker.pid, worker.cpu) for worker in found.workers] == [(20, pytest.approx(0.7))]
    assert found.processes[1].role == WORKER
    assert {use.tid: use.role for use in found.threads} == {20: "", 10: MAIN}, "a worker's main thread trains nothing"


def test_the_thread_that_closes_steps_is_the_training_thread() -> None:
    reader = FakeReader([process(10, 0.0)], {10: [thread(10, 5.0), thread(11, 1.0)]})
    found = taken(Live(WATCHED, reader, clock=Clock(1), steps=Steps()))  # type: ignore[arg-type]
    assert found.training is not None
    assert (found.training.tid, found.training.role) == (11, TRAINING)
    assert found.steps is not None
    assert "steps" not in found.unknown


@pytest.mark.parametrize("after", [[], [process(10, 0.0, started=99.0)]], ids=["gone", "its number is another's"])
def test_the_end(after: list[Any]) -> None:
    reader = FakeReader([process(10, 0.0)])
    live = Live(WATCHED, reader, clock=Clock(1, 2))
    taken(live)
    reader.processes = after
    assert live.snapshot() is None


# ---------------------------------------------------------------- the real reader


@pytest.fixture(scope="module")
def forked() -> Iterator[int]:
    """A Python with a forked child; both wait for their standard input to close."""
    program = "import os, sys; pid = os.fork(); print(os.getpid(), flush=True); sys.stdin.read(); pid and os.wait()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.readline()
        yield child.pid
        child.stdin.close()  # type: ignore[union-attr]


def test_reads_this_kernel(forked: int) -> None:
    reader = ProcReader()
    parent, worker = reader.tree(forked)
    assert (parent.pid, worker.parent) == (forked, forked)
    assert parent.rss > 1 << 20
    assert 0 < parent.started <= reader.uptime()
    assert reader.is_worker(worker, parent), "forked of itself"
    assert not reader.is_worker(parent, process(1, 0.0)), "started by something else"
    assert [row.tid for row in reader.threads(forked)] == [forked]
    assert reader.threads(forked)[0].name.startswith("python")
    assert 0 < reader.cores(forked) <= (os.cpu_count() or 1)
    found = taken(Live(Watched(forked, "x"), reader))
    assert len(found.workers) == 1
    assert found.training is not None
    assert found.training.tid == forked


def test_a_process_that_is_not_there() -> None:
    assert ProcReader().tree(2**22 + 1) == []
