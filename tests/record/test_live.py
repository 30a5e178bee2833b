"""Snapshots of a made-up program and of a real one, and which program is looked at, in a made-up /proc."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from profiler.core.errors import ProfilerError
from profiler.core.live import MAIN, TRAINING, Snapshot, StepUse, Watched
from profiler.core.procfs import ProcessStat
from profiler.record import live as live_module
from profiler.record.live import NOT_OURS, LiveProgram, SystemReader, find_watched, run_directory
from profiler.run.model import StepDefinition, StepKind
from tests.fakes.live import WATCHED, FakeReader, process, thread
from tests.fakes.proc import FakeProc
from tests.recorded.directories import write_manifest


class Clock:
    """Gives the seconds that it was told, in ns."""

    def __init__(self, *seconds: float) -> None:
        self._seconds = iter(seconds)

    def __call__(self) -> int:
        return round(next(self._seconds) * 1e9)


class Steps:
    """Says that thread 11 of process 10 closes the steps."""

    def read(self, now: int) -> tuple[StepUse, str]:
        return StepUse(StepDefinition(StepKind.OPTIMIZER, (("SGD",),)), 10.0, 0.5, 0.1, pid=10, tid=11), ""


def snapshot_of(live: LiveProgram) -> Snapshot:
    snapshot = live.snapshot()
    assert snapshot is not None
    return snapshot


def test_cpu_needs_two_readings_and_is_a_rate() -> None:
    reader = FakeReader({10: process(3.0)}, {10: {10: thread(2.0), 11: thread(1.0)}})
    live = LiveProgram(WATCHED, reader, clock=Clock(100, 102))
    first = snapshot_of(live)
    assert (first.cpu, first.unknown["cpu"]) == (None, "needs two readings")
    assert all(use.cpu is None for use in first.threads)
    reader.processes = {10: process(4.0)}
    reader.threads_of[10] = {10: thread(2.1, wait=0.6), 11: thread(1.9)}
    second = snapshot_of(live)
    assert (second.ran, second.cores, second.rss, second.processes) == (60.0, 4.0, 10_000, 1)
    assert [(use.tid, use.cpu) for use in second.threads] == [(11, pytest.approx(0.45)), (10, pytest.approx(0.05))]
    assert second.threads[1].delayed == pytest.approx(0.3)
    assert second.cpu == pytest.approx(0.5)
    assert second.unknown["steps"] == NOT_OURS
    assert second.unknown["gpus"] == "no GPU here: no driver"


def test_rates_are_means_of_the_last_seconds() -> None:
    reader = FakeReader({10: process(0.0)})
    live = LiveProgram(WATCHED, reader, clock=Clock(*range(10)))
    seen = []
    for second in range(10):
        used = min(second, 4)  # one core for four seconds, then none
        reader.processes, reader.threads_of = {10: process(float(used))}, {10: {10: thread(float(used))}}
        seen.append(snapshot_of(live).cpu)
    assert seen == [None, *map(pytest.approx, (1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.0))]


def test_a_new_process_has_used_all_its_cpu_since() -> None:
    reader = FakeReader({10: process(0.0)}, {10: {10: thread(0.0)}})
    live = LiveProgram(WATCHED, reader, clock=Clock(1, 2))
    snapshot_of(live)
    reader.processes = {10: process(0.0), 20: process(0.7, parent=10, name="pt_data_worker")}
    reader.threads_of[20] = {20: thread(0.7, name="pt_data_worker")}
    snapshot = snapshot_of(live)
    assert snapshot.cpu == pytest.approx(0.7)
    assert [(worker.pid, worker.cpu) for worker in snapshot.workers] == [(20, pytest.approx(0.7))]
    assert {use.tid: use.role for use in snapshot.threads} == {20: "", 10: MAIN}, (
        "a worker's main thread trains nothing"
    )


def test_the_thread_that_closes_steps_is_the_training_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "StepRate", lambda run: Steps())
    reader = FakeReader({10: process(0.0)}, {10: {10: thread(5.0), 11: thread(1.0)}})
    snapshot = snapshot_of(LiveProgram(replace(WATCHED, run="recorded"), reader, clock=Clock(1)))
    assert snapshot.training is not None
    assert (snapshot.training.tid, snapshot.training.role) == (11, TRAINING)
    assert snapshot.steps is not None
    assert "steps" not in snapshot.unknown


@pytest.mark.parametrize("after", [{}, {10: process(0.0, started=99.0)}], ids=["ended", "its PID is another's"])
def test_the_end(after: dict[int, ProcessStat]) -> None:
    reader = FakeReader({10: process(0.0)})
    live = LiveProgram(WATCHED, reader, clock=Clock(1, 2))
    snapshot_of(live)
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
    reader = SystemReader()
    tree = reader.tree(forked)
    parent, worker = tree
    assert (parent, tree[worker].parent) == (forked, forked)
    assert tree[parent].rss_bytes > 1 << 20
    assert reader.is_worker(worker, tree[worker]), "forked of itself"
    assert not reader.is_worker(parent, tree[parent]), "started by something else"
    ((stat, _),) = reader.threads(forked).values()
    assert stat.name.startswith("python")
    assert 0 < reader.cores(forked) <= (os.cpu_count() or 1)
    snapshot = snapshot_of(LiveProgram(Watched(forked, "x"), reader))
    assert len(snapshot.workers) == 1
    assert snapshot.training is not None
    assert snapshot.training.tid == forked


# ---------------------------------------------------------------- which program


def add(proc: FakeProc, pid: int, parent: int, run: Path | None, argv: tuple[str, ...] = ("python", "x.py")) -> None:
    environment = {"HOME": "/", **({"PROFILER_RUN_DIR": str(run)} if run else {}), "X": "1"}
    proc.add(pid, parent, arguments=argv, environment=environment)


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


def a_run(path: Path, *, state: str = "running", begin: int = 1) -> Path:
    return write_manifest(path, argv=("python", "train.py"), label="mine", state=state, begin=begin)


def test_the_newest_run_that_somebody_writes_to(tmp_path: Path, proc: FakeProc) -> None:
    old, new = a_run(tmp_path / "old", begin=1), a_run(tmp_path / "new", begin=2)
    over, dead = a_run(tmp_path / "over", state="complete", begin=9), a_run(tmp_path / "dead", begin=8)
    add(proc, 1, 0, None)
    add(proc, 40, 1, old)
    add(proc, 50, 1, new)
    add(proc, 51, 50, new)  # a worker of it
    add(proc, 60, 1, over)  # left behind by a program that has ended
    watched = find_watched(None, proc=proc.folder)
    assert (watched.pid, watched.run, watched.program, watched.level) == (50, str(new), "mine", "light")
    assert find_watched(str(old), proc=proc.folder).pid == 40
    with pytest.raises(ProfilerError, match="no process of the run"):
        find_watched(str(dead), proc=proc.folder)
    with pytest.raises(ProfilerError, match=r"over \(complete\): python -m profiler diagnose"):
        find_watched(str(over), proc=proc.folder)


def test_a_run_below_the_working_directory_comes_before_newer_ones(
    tmp_path: Path, proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid, name in ((40, "here"), (50, "elsewhere")):
        add(proc, pid, 1, a_run(tmp_path / name / "run", begin=pid))
    monkeypatch.chdir(tmp_path / "here")
    assert find_watched(None, proc=proc.folder).pid == 40
    monkeypatch.chdir(tmp_path)
    assert find_watched(None, proc=proc.folder).pid == 50


def test_a_recorded_pid_is_identified_by_its_run(tmp_path: Path, proc: FakeProc) -> None:
    run, ours, other = a_run(tmp_path / "run"), 2**22 + 5, 2**22 + 6
    add(proc, other, 1, None, ("/usr/bin/python3", "-u", "fit.py", "--lr", "1"))
    with pytest.raises(ProfilerError, match="nothing is being recorded: give the PID"):
        find_watched(None, proc=proc.folder)
    add(proc, ours, 1, run)
    watched = find_watched(str(ours), proc=proc.folder)
    assert (watched.pid, watched.run, watched.program) == (ours, str(run), "train")
    watched = find_watched(str(other), proc=proc.folder)
    assert (watched.program, watched.run) == ("fit", "")


@pytest.mark.parametrize(("asked", "error"), [("4194399", "there is no process 4194399"), ("nowhere", "is not a run")])
def test_programs_that_do_not_exist(asked: str, error: str, proc: FakeProc) -> None:
    with pytest.raises(ProfilerError, match=error):
        find_watched(asked, proc=proc.folder)
    assert run_directory(os.getpid()) is None, "this process is not recorded"
    assert SystemReader().tree(2**22 + 1) == {}
