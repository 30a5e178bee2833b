"""The reader of /proc, on a fake folder and on this kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from profiler.core import procfs
from profiler.core.metrics import BlockedIn
from profiler.core.procfs import CLOCK_TICKS, CpuTimes, ProcessStat, ThreadTimes
from tests.fakes.proc import FakeProc


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


def test_stat_of_a_name_with_blanks_and_brackets(proc: FakeProc) -> None:
    proc.add(40, 1, name="a) S (b) \N{SNOWMAN}", state="R")
    expected = ProcessStat(
        name="a) S (b) \N{SNOWMAN}",
        state="R",
        parent=1,
        session=8,
        cpu_s=(14 + 15) / CLOCK_TICKS,
        threads=20,
        start_ticks=22,
        rss_bytes=24 * os.sysconf("SC_PAGE_SIZE"),
        core=39,
    )
    assert procfs.read_stat(40, proc=proc.folder) == expected, "fields of proc(5), counted from 1"
    assert procfs.read_stat(40, 40, proc=proc.folder) == expected
    assert expected.started_s == 22 / CLOCK_TICKS
    assert procfs.all_processes(proc.folder) == {40: expected}


@pytest.mark.parametrize("content", ["", "40 (x", "40 (x) S 1", "40 (x) S one 2 3"])
def test_damaged_files_are_as_if_the_process_had_ended(proc: FakeProc, content: str) -> None:
    folder = proc.add(40)
    (folder / "stat").write_text(content)
    (folder / "task" / "40" / "schedstat").write_text(content)
    assert procfs.read_stat(40, proc=proc.folder) is None
    assert procfs.all_processes(proc.folder) == {}
    assert procfs.thread_times(40, [40], proc.folder) == {}


def test_times_of_threads(proc: FakeProc) -> None:
    proc.add(40, threads={40: "1500000000 250000000 9", 41: "7 0 1"})
    assert sorted(procfs.thread_ids(40, proc.folder)) == [40, 41]
    assert procfs.thread_times(40, [40, 41, 42], proc.folder) == {
        40: ThreadTimes(cpu_ns=1_500_000_000, wait_ns=250_000_000),
        41: ThreadTimes(7, 0),
    }
    assert procfs.thread_name(40, 41, proc.folder) == "python"
    assert procfs.thread_states(40, proc.folder) == {"S"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("running", BlockedIn.NOTHING),
        ("202 0x7f00 0x89 0x0 0x7ffc 0x0 0xffffffff 0x1 0x2", BlockedIn.TIMED_FUTEX),
        ("202 0x7f00 0x189 0x0 0x0 0x0 0xffffffff 0x1 0x2", BlockedIn.FUTEX),
        ("202 0x7f00 0x80 0x4 0x0 0x0 0x0 0x1 0x2", BlockedIn.OPENMP),
        ("230 0x1 0x0 0x7ffc 0x0 0x0 0x0 0x1 0x2", BlockedIn.SLEEP),
        ("7 0x1 0x0 0x7ffc 0x0 0x0 0x0 0x1 0x2", BlockedIn.OTHER),
        ("0 0x5 0x7ffc 0x0 0x0 0x0 0x0 0x1 0x2", BlockedIn.FILE),
        ("0 0x6 0x7ffc 0x0 0x0 0x0 0x0 0x1 0x2", BlockedIn.SOCKET),
        ("0 0x7 0x7ffc 0x0 0x0 0x0 0x0 0x1 0x2", BlockedIn.OTHER),
        ("257 0x5 0x7ffc 0x0 0x0 0x0 0x0 0x1 0x2", BlockedIn.FILE),
        ("45 0x6 0x7ffc 0x0 0x0 0x0 0x0 0x1 0x2", BlockedIn.SOCKET),
        ("-1 0x7ffc 0x1", BlockedIn.NOTHING),
        ("", None),
    ],
)
def test_what_a_thread_is_blocked_in(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch, text: str, expected: BlockedIn | None
) -> None:
    proc.add(40)
    for name in ("_SYSTEM_CALLS", "_READS", "_OPENS", "_RECEIVES"):
        monkeypatch.setattr(procfs, name, {os.uname().machine: getattr(procfs, name)["x86_64"]})
    (proc.folder / "40" / "fd").mkdir()
    for number, target in ((5, "/data/items.bin"), (6, "socket:[123]"), (7, "pipe:[123]")):
        (proc.folder / "40" / "fd" / str(number)).symlink_to(target)
    (proc.folder / "40" / "task" / "40" / "syscall").write_text(text)
    assert procfs.blocked_in(40, 40, proc.folder) == expected
    assert procfs.blocked_in(40, 41, proc.folder) is None


def test_a_tree_is_listed_by_generation(proc: FakeProc) -> None:
    for pid, parent in ((10, 1), (20, 10), (30, 20), (21, 10), (99, 1)):
        proc.add(pid, parent)
    assert procfs.process_tree(10, proc.folder) == [10, 20, 21, 30]
    assert procfs.descendants(10, proc.folder) == [20, 21, 30]
    children = list(range(100_000, 104_000))
    (proc.folder / "99" / "task" / "99" / "children").write_text(" ".join(map(str, children)))
    assert procfs.descendants(99, proc.folder) == children, "many children need several reads"


def test_arguments_environment_and_status(proc: FakeProc) -> None:
    proc.add(40, arguments=("python", "", "-c", "x=1"), environment={"RANK": "3", "A": "b=c"})
    assert procfs.read_arguments(40, proc.folder) == ("python", "-c", "x=1")
    assert procfs.read_environment(40, proc.folder) == {"RANK": "3", "A": "b=c"}
    assert procfs.read_status(40, "Uid", proc.folder).split()[0] == "1000"
    assert procfs.read_status(40, "CapEff", proc.folder) == ""
    assert procfs.peak_rss(40, proc.folder) == 2048 * 1024
    (proc.folder / "40" / "statm").write_text("900 700 300 1 0 20 0\n")
    assert procfs.anonymous_memory(40, proc.folder) == 400 * os.sysconf("SC_PAGE_SIZE")


def test_the_machine(proc: FakeProc) -> None:
    (proc.folder / "stat").write_text("cpu  10 20 30 400 50 6 7 80 9 9\ncpu0 1 2 3\n")
    (proc.folder / "loadavg").write_text("0.50 0.40 0.30 3/812 12345\n")
    expected = CpuTimes(total=603, idle=450, stolen=80, low_priority=20)
    assert procfs.cpu_times(proc.folder) == expected, "guest time is not added again"
    assert procfs.runnable_threads(proc.folder) == 3
    (proc.folder / "stat").write_text("cpu  10 20\n")
    (proc.folder / "loadavg").write_text("\n")
    assert procfs.cpu_times(proc.folder) is None
    assert procfs.runnable_threads(proc.folder) is None


def test_this_process() -> None:
    pid = os.getpid()
    stat = procfs.read_stat(pid)
    assert stat is not None
    assert (stat.parent, stat.threads) == (os.getppid(), len(procfs.thread_ids(pid)))
    assert 0 < stat.started_s <= procfs.uptime()
    assert procfs.thread_times(pid, [pid])[pid].cpu_ns > 0
    assert "python" in procfs.read_arguments(pid)[0]
    assert procfs.read_environment(pid)["PATH"]
    assert procfs.is_alive(pid, stat.start_ticks)
    assert not procfs.is_alive(pid, stat.start_ticks - 1), "another process with the same PID"
    assert procfs.is_python(pid)
    assert pid in procfs.process_tree(os.getppid())
    assert stat.rss_bytes <= (procfs.peak_rss(pid) or 0)
    assert procfs.cpu_times() is not None


def test_a_process_that_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    assert procfs.wait_exit(child.pid, 60)
    assert procfs.wait_exit(child.pid, 0), "it stays to be reaped"
    assert not procfs.is_alive(child.pid), "a zombie does not run"
    child.wait()
    assert procfs.read_stat(child.pid) is None
    assert procfs.process_tree(child.pid) == [child.pid]
    assert (procfs.thread_ids(child.pid), procfs.read_arguments(child.pid)) == ([], ())
    assert (procfs.read_environment(child.pid), procfs.read_status(child.pid, "Uid")) == ({}, "")
    assert (procfs.peak_rss(child.pid), procfs.anonymous_memory(child.pid)) == (None, None)
    assert not procfs.is_python(child.pid)
    assert procfs.wait_exit(child.pid, 0)
