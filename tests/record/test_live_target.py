"""What a live view is asked to look at, found in a made-up /proc."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profiler.core.errors import ProfilerError
from profiler.record.live_target import recorded_in, watched
from profiler.run import store
from profiler.run.model import RunInfo
from tests.fakes.proc import FakeProc


def add(proc: FakeProc, pid: int, parent: int, run: Path | None, argv: tuple[str, ...] = ("python", "x.py")) -> None:
    environment = {"HOME": "/", **({"PROFILER_RUN_DIR": str(run)} if run else {}), "X": "1"}
    proc.add(pid, parent, arguments=argv, environment=environment)


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


def a_run(path: Path, *, state: str = "running", begin: int = 1) -> Path:
    store.create(path)
    store.write_manifest(path, RunInfo(1, "r", "", ("python", "train.py"), label="mine", state=state, begin=begin))
    return path


def test_the_newest_run_that_somebody_writes_to(tmp_path: Path, proc: FakeProc) -> None:
    old, new = a_run(tmp_path / "old", begin=1), a_run(tmp_path / "new", begin=2)
    over, dead = a_run(tmp_path / "over", state="complete", begin=9), a_run(tmp_path / "dead", begin=8)
    add(proc, 1, 0, None)
    add(proc, 40, 1, old)
    add(proc, 50, 1, new)
    add(proc, 51, 50, new)  # a worker of it
    add(proc, 60, 1, over)  # left behind by a program that has ended
    found = watched(None, proc=proc.folder)
    assert (found.pid, found.run, found.program, found.level) == (50, str(new), "mine", "light")
    assert watched(str(old), proc=proc.folder).pid == 40
    with pytest.raises(ProfilerError, match="no process of the run"):
        watched(str(dead), proc=proc.folder)
    with pytest.raises(ProfilerError, match=r"over \(complete\): python -m profiler diagnose"):
        watched(str(over), proc=proc.folder)


def test_nothing_is_recorded(proc: FakeProc) -> None:
    add(proc, 1, 0, None)
    with pytest.raises(ProfilerError, match="nothing is being recorded: give the PID"):
        watched(None, proc=proc.folder)


def test_a_pid_that_we_record_is_known_as_its_run(tmp_path: Path, proc: FakeProc) -> None:
    run, other = a_run(tmp_path / "run"), 2**22 + 5
    add(proc, other, 1, run)
    found = watched(str(other), proc=proc.folder)
    assert (found.pid, found.run, found.program) == (other, str(run), "train")


def test_a_pid_that_we_do_not_record(proc: FakeProc) -> None:
    other = 2**22 + 6
    add(proc, other, 1, None, ("/usr/bin/python3", "-u", "fit.py", "--lr", "1"))
    found = watched(str(other), proc=proc.folder)
    assert (found.program, found.run, found.argv[-1]) == ("fit", "", "1")


@pytest.mark.parametrize(("asked", "error"), [("4194399", "there is no process 4194399"), ("nowhere", "is not a run")])
def test_what_is_not_there(asked: str, error: str, proc: FakeProc) -> None:
    with pytest.raises(ProfilerError, match=error):
        watched(asked, proc=proc.folder)


def test_reads_this_kernel() -> None:
    assert recorded_in(os.getpid()) is None
