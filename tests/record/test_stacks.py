"""The stacks collector: windows joined, forbidden ptrace, a py-spy that fails, and the right process of a tree."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from profiler.record.collector import Context
from profiler.record.collectors import stacks
from profiler.record.collectors.stacks import FORBIDDEN, StacksCollector, python_of
from profiler.run import store
from profiler.run.load import load
from profiler.run.model import CollectorStatus, Run, RunInfo, RunSpec

# Writes a trace of 0.05 s with the process's own id as the thread's, and says how many samples were taken.
FAKE = """#!PYTHON
import json, sys
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
pid = int(options["--pid"])
def event(phase, ts, name, line):
    args = {"filename": "a.py" if line else "", "line": line}
    return {"ph": phase, "ts": ts, "name": name, "pid": pid, "tid": 1, "args": args}
thread = "thread (%d): MainThread" % pid
events = [event("B", 10, thread, 0), event("B", 10, "main", 3)]
events += [event("E", 2000, "main", 3), event("E", 2000, thread, 0)]
json.dump(events, open(options["--output"], "w"))
print("py-spy> Wrote chrome trace to 'x'. Samples: 1 Errors: 2")
"""
REFUSING = """#!/bin/sh
echo "Permission Denied: Try running again with elevated permissions"
exit 1
"""
FAILING = """#!/bin/sh
echo "Error: Failed to find python version from target process"
echo "Reason: it is no Python"
exit 1
"""


@contextmanager
def waiting() -> Iterator[int]:
    """The pid of a process that lives as long as the block."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        yield child.pid
    finally:
        child.communicate(b"\n")


def collect(folder: Path, text: str, windows: int) -> tuple[CollectorStatus, Run]:
    """The collector with a fake in the place of py-spy, until it has opened so many windows."""
    program = folder / "py-spy"
    program.write_text(text.replace("PYTHON", sys.executable))
    program.chmod(0o755)
    collector = StacksCollector()
    assert collector.available() is None
    collector._program = str(program)
    run = folder / "run"
    store.create(run)
    store.write_manifest(run, RunInfo(1, "r", "", ("x",), state="complete"))
    writer = store.RunWriter(run)
    with waiting() as pid:
        collector.start(Context(RunSpec(("x",), run), pid, writer))
        while collector._number < windows and collector._thread.is_alive():
            pass
        status = collector.stop()
    writer.close()
    return status, load(run)


def test_windows_are_joined_on_our_clock(tmp_path: Path) -> None:
    status, run = collect(tmp_path, FAKE, 3)
    windows = len(run.stacks)
    assert windows >= 3
    assert (status.state, status.records, status.dropped) == ("ok", windows, 2 * windows)
    assert status.cost_s is not None
    assert status.cost_s > 0
    assert len(run.stack_frames) == 1
    assert (run.stacks["end"] - run.stacks["begin"]).tolist() == [1_990_000] * windows
    assert all(run.stacks["begin"][1:] > run.stacks["end"][:-1]), "each window lies after the one before"
    slack = run.samples["value"][run.samples["name"] == run.names.index("stacks.clock_slack_s")]
    assert len(slack) == windows
    assert [path.name for path in (tmp_path / "run" / "recorder").glob("window-*")] == []


def test_forbidden_ptrace_says_what_to_do(tmp_path: Path) -> None:
    status, run = collect(tmp_path, REFUSING, 2)
    assert (status.state, status.reason) == ("unavailable", FORBIDDEN)
    assert "\n" not in FORBIDDEN
    assert len(run.stacks) == 0


def test_a_py_spy_that_fails_is_quoted(tmp_path: Path) -> None:
    status, _ = collect(tmp_path, FAILING, 2)
    reason = "py-spy: Error: Failed to find python version from target process Reason: it is no Python"
    assert (status.state, status.reason) == ("failed", reason)


def test_a_trace_that_cannot_be_read_ends_the_collector(tmp_path: Path) -> None:
    status, _ = collect(tmp_path, '#!/bin/sh\nwhile [ "$1" != --output ]; do shift; done\necho "[{" > "$2"\n', 3)
    assert status.state == "failed"
    assert "JSONDecodeError" in status.reason


def test_without_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks.shutil, "which", lambda *_, **__: None)
    assert StacksCollector().available() == "py-spy is not installed: pip install py-spy"


def test_the_python_below_a_shell_is_found() -> None:
    code = "print('up', flush=True); input()"
    shell = subprocess.Popen(
        ["/bin/sh", "-c", f'"{sys.executable}" -c "{code}"; true'],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert shell.stdout is not None
    shell.stdout.readline()
    found = python_of(shell.pid)
    assert found != shell.pid
    assert "python" in Path(f"/proc/{found}/exe").readlink().name
    shell.communicate("\n")
    assert python_of(os.getpid()) == os.getpid()
