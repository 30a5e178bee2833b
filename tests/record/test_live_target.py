"""What a live view is asked to look at, found in a made-up /proc."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profiler.core.errors import ProfilerError
from profiler.record.live_target import argv_of, recorded_in, watched
from profiler.run import store
from profiler.run.model import RunInfo


class Proc:
    """A folder like /proc."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def add(self, pid: int, parent: int, run: Path | None, argv: tuple[str, ...] = ("python", "train.py")) -> None:
        folder = self.folder / str(pid)
        folder.mkdir()
        environment = ["HOME=/", *([f"PROFILER_RUN_DIR={run}"] if run else []), "X=1"]
        (folder / "environ").write_bytes("\0".join(environment).encode())
        (folder / "cmdline").write_bytes("\0".join((*argv, "")).encode())
        (folder / "stat").write_text(f"{pid} (a) b) S {parent} 0 0")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path / "proc")


def a_run(path: Path, *, state: str = "running", begin: int = 1) -> Path:
    store.create(path)
    store.write_manifest(path, RunInfo(1, "r", "", ("python", "train.py"), label="mine", state=state, begin=begin))
    return path


def test_the_newest_run_that_somebody_writes_to(tmp_path: Path, proc: Proc) -> None:
    old, new = a_run(tmp_path / "old", begin=1), a_run(tmp_path / "new", begin=2)
    over, dead = a_run(tmp_path / "over", state="complete", begin=9), a_run(tmp_path / "dead", begin=8)
    proc.add(1, 0, None)
    proc.add(40, 1, old)
    proc.add(50, 1, new)
    proc.add(51, 50, new)  # a worker of it
    proc.add(60, 1, over)  # left behind by a program that has ended
    found = watched(None, proc=proc.folder)
    assert (found.pid, found.run, found.program, found.level) == (50, str(new), "mine", "light")
    assert watched(str(old), proc=proc.folder).pid == 40
    with pytest.raises(ProfilerError, match="no process of the run"):
        watched(str(dead), proc=proc.folder)
    with pytest.raises(ProfilerError, match=r"over \(complete\): python -m profiler diagnose"):
        watched(str(over), proc=proc.folder)


def test_nothing_is_recorded(proc: Proc) -> None:
    proc.add(1, 0, None)
    with pytest.raises(ProfilerError, match="nothing is being recorded: give the PID"):
        watched(None, proc=proc.folder)


def test_a_pid_that_we_record_is_known_as_its_run(tmp_path: Path, proc: Proc) -> None:
    run, other = a_run(tmp_path / "run"), 2**22 + 5  # no such process: it has no descendants
    proc.add(other, 1, run)
    found = watched(str(other), proc=proc.folder)
    assert (found.pid, found.run, found.program) == (other, str(run), "train")


def test_a_pid_that_we_do_not_record(proc: Proc) -> None:
    other = 2**22 + 6
    proc.add(other, 1, None, ("/usr/bin/python3", "-u", "fit.py", "--lr", "1"))
    found = watched(str(other), proc=proc.folder)
    assert (found.program, found.run, found.argv[-1]) == ("fit", "", "1")


@pytest.mark.parametrize(("asked", "said"), [("4194399", "there is no process 4194399"), ("nowhere", "is not a run")])
def test_what_is_not_there(asked: str, said: str, proc: Proc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProfilerError, match=said):
        watched(asked, proc=proc.folder)


def test_reads_this_kernel() -> None:
    assert "python" in argv_of(os.getpid())[0]
    assert recorded_in(os.getpid()) is None
