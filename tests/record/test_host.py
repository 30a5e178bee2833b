"""The host collector on a real child: processes, threads, the end of the child, its own cost."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from profiler.core.metrics import SAMPLE_NAMES, THREAD_NAME
from profiler.core.procfs import descendants, thread_ids, thread_times
from profiler.record.collectors import Context, Sampler, host
from profiler.record.collectors.host import _SLOW_EVERY, HostReader
from profiler.run import store
from profiler.run.load import load
from profiler.run.model import Run, RunSpec
from tests.recorded.directories import write_manifest

# One thread spins, the main thread waits for a line; a forked child waits too.
CHILD = """
import os, sys, threading
reader, writer = os.pipe()
if os.fork() == 0:
    os.close(writer)
    os.read(reader, 1)  # until the parent has ended
    os._exit(0)
stop = threading.Event()
def spin():
    while not stop.is_set():
        pass
thread = threading.Thread(target=spin, daemon=True)
thread.start()
print(thread.native_id, flush=True)
sys.stdin.readline()
print("done", flush=True)
sys.stdin.read()
"""


def values(run: Run, name: str, pid: int, tid: int = 0) -> list[float]:
    rows = run.samples[(run.samples["pid"] == pid) & (run.samples["tid"] == tid)]
    return [float(row["value"]) for row in rows if run.names[row["name"]] == name]


def sample(folder: Path, level: str, times: int) -> tuple[Run, int, int, int]:
    """Samples of CHILD: the run, its pid, the spinning thread, and its child."""
    store.create(folder)
    write_manifest(folder)
    writer = store.RunWriter(folder)
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        spinner = int(child.stdout.readline())
        taker = HostReader(Context(RunSpec(("x",), folder, level=level), child.pid, writer))
        for _ in range(times):
            taker.take()
        grandchild = descendants(child.pid)[0]
        before = thread_ids(child.pid)
        assert spinner in before
        child.stdin.write("\n")
        child.stdin.flush()
        child.stdout.readline()
        began, until = thread_times(child.pid, [spinner])[spinner], time.monotonic() + 60
        while thread_times(child.pid, [spinner])[spinner] <= began and time.monotonic() < until:
            time.sleep(0.01)  # on a busy machine its turn may be a while
        taker.take()
    finally:
        child.stdin.close()
        child.kill()
        child.wait()
    taker.take()  # nobody is there any more: no fault
    writer.close()
    return load(folder), child.pid, spinner, grandchild


def test_processes_threads_and_machine(tmp_path: Path) -> None:
    run, pid, spinner, grandchild = sample(tmp_path / "run", "standard", _SLOW_EVERY)
    assert {name for name in run.names if not name.startswith(THREAD_NAME)} <= set(SAMPLE_NAMES)
    assert any(name.startswith(THREAD_NAME) for name in run.names)
    spun = values(run, "thread.cpu_s", pid, spinner)
    waited = values(run, "thread.cpu_s", pid, pid)
    assert len(spun) == len(waited) == _SLOW_EVERY + 1
    assert spun[-1] > spun[0], f"a spinning thread uses CPU: {spun}"
    assert spun == sorted(spun)
    assert values(run, "process.rss", pid)[-1] <= values(run, "process.peak_rss", pid)[-1]
    memory = values(run, "process.anonymous", pid)
    assert len(memory) == _SLOW_EVERY + 1, "with each sample"
    assert 0 < memory[-1] <= values(run, "process.rss", pid)[-1]
    assert values(run, "process.threads", pid)[-1] == 2
    faults, kernel = (values(run, f"thread.{name}", pid, pid) for name in ("minor_faults", "system_s"))
    assert len(faults) == len(kernel) == 2, "with slow samples only"
    assert 0 < faults[0] <= faults[-1]
    memory = values(run, "process.rss", grandchild)
    assert len(memory) >= _SLOW_EVERY, "forked children are sampled too"
    assert min(memory) > 0, f"one that has ended has no sample: {memory}"
    utilization = values(run, "machine.cpu_util", 0)
    assert all(0 <= value <= 1 for value in utilization), utilization


def test_level_light_reads_threads_with_every_fifth_sample(tmp_path: Path) -> None:
    run, pid, spinner, _ = sample(tmp_path / "run", "light", _SLOW_EVERY)
    assert len(values(run, "process.cpu_s", pid)) == _SLOW_EVERY + 1
    assert len(values(run, "thread.cpu_s", pid, spinner)) == 2


def test_peaks_are_read_when_a_process_is_first_seen_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_RESCAN_S", float("inf"))  # a sample after a second would look for the child again
    store.create(tmp_path / "run")
    write_manifest(tmp_path / "run")
    writer = store.RunWriter(tmp_path / "run")
    taker = HostReader(Context(RunSpec(("x",), tmp_path / "run"), os.getpid(), writer))
    taker.take()
    program = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()  # before it runs, the kernel may tell 0 pages of memory, as of one that has ended
        while child.pid not in taker._processes:  # the kernel's list may lack a child while another one ends (proc(5))
            taker._find_processes()
        for _ in range(2):
            taker.take()  # neither is a slow sample
        Sampler("x", 60, lambda: 0, taker.take_last).stop()
    assert taker.take_last() >= 0, "nobody is there any more: no fault"
    writer.close()
    run = load(tmp_path / "run")
    assert len(values(run, "process.rss", child.pid)) == 2
    assert len(values(run, "process.peak_rss", child.pid)) == 2, "one in its first sample, one at the end"


def test_samples_that_cost_much_come_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.create(tmp_path / "run")
    writer = store.RunWriter(tmp_path / "run")
    taker = HostReader(Context(RunSpec(("x",), tmp_path / "run"), os.getpid(), writer))
    now, used = 100.0, 0.0

    def take() -> int:
        nonlocal used
        used += 0.007
        return 5

    monkeypatch.setattr(taker, "take", take)
    monkeypatch.setattr(host.time, "monotonic", lambda: now)
    monkeypatch.setattr(host.time, "thread_time", lambda: used)
    taken = []
    for _ in range(10):
        taken.append(taker.take_if_due())
        now += 0.1
    writer.close()
    assert taken == [5, 0, 0, 0, 5, 0, 0, 0, 5, 0], "7 ms of CPU each, and 2% of a core"


def test_the_error_of_a_sampler_is_its_status() -> None:
    died = threading.Event()
    results = iter([2, 2])

    def tick() -> int:
        for result in results:
            return result
        died.set()
        raise RuntimeError("the\nsensor broke")

    sampler = Sampler("x", 0.0001, tick)
    assert died.wait(30)
    status = sampler.stop()
    assert (status.state, status.reason, status.records) == ("failed", "RuntimeError: the sensor broke", 4)
    assert status.cost_s is not None
    assert Sampler("x", 60, lambda: 3).stop().records == 3, "a recording that ends at once has a sample"
