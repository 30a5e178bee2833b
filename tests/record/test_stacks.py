"""The stacks collector: windows of both kinds, forbidden ptrace, a py-spy that fails, and the processes of a tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from profiler.core.procfs import ProcessStat
from profiler.record.collectors import Context, _pyspy, stacks
from profiler.record.collectors._pyspy import PySpy, RealtimePriority, Span, WindowPlan
from profiler.record.collectors._sampling import SamplingSchedule, affordable_rate
from profiler.record.collectors.stacks import StacksCollector, has_steps, has_torn_frame, sampled_processes
from profiler.run import store
from profiler.run.load import load
from profiler.run.model import CollectorStatus, Run, RunSpec
from profiler.run.tables import packer
from tests.fakes.programs import waiting_python
from tests.recorded.directories import write_manifest

# Writes a trace of 2 ms with the process's own id as the thread's, and says how many samples were taken; asked for the
# holder of the GIL, it has seen one 30 times.
FAKE = """#!PYTHON
import json, sys
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
pid = int(options["--pid"])
def event(phase, ts, name, line):
    args = {"filename": "a.py" if line else "", "line": line}
    return {"ph": phase, "ts": ts, "name": name, "pid": pid, "tid": 1, "args": args}
thread = "thread (%d): MainThread" % pid
if "--gil" in sys.argv:
    frames = [{"name": thread, "file": "", "line": 0}, {"name": "main", "file": "a.py", "line": 3}]
    profile = {"samples": [[0, 1]] * 30}
    json.dump({"shared": {"frames": frames}, "profiles": [profile]}, open(options["--output"], "w"))
    print("py-spy> Wrote speedscope file to 'x'. Samples: 30 Errors: 0")
    sys.exit()
events = [event("B", 10, thread, 0), event("B", 10, "main", 3)]
events += [event("E", 2000, "main", 3), event("E", 2000, thread, 0)]
json.dump(events, open(options["--output"], "w"))
print("py-spy> Wrote chrome trace to 'x'. Samples: 1 Errors: 2")
"""
# As FAKE, but it ends only when it is told.
PATIENT = FAKE.replace("json.dump(events", "wait()\njson.dump(events").replace(
    "options =",
    """import signal
def wait():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    print("py-spy> Sampling process", flush=True)
    signal.sigwait({signal.SIGINT})
options =""",
)


def collect(
    folder: Path,
    text: str,
    windows: int,
    *,
    of: int | None = None,
    until_it_samples: bool = False,
    steps: bool = False,
) -> tuple[CollectorStatus, Run]:
    """The collector with a fake in the place of py-spy, until it has opened so many windows (of process `of`).

    :param steps: the program then steps, and the next window samples too.
    """
    program = folder / "py-spy"
    program.write_text(text.replace("PYTHON", sys.executable))
    program.chmod(0o755)
    collector = StacksCollector()
    assert collector.available() is None
    collector._program = str(program)
    run = folder / "run"
    store.create(run)
    write_manifest(run)
    writer = store.RunWriter(run)
    with waiting_python() as child:
        pid = of or child.pid
        collector.start(Context(RunSpec(("x",), run, stack_rate=10, hooks=steps), pid, writer))
        while not collector._samplers or ((sampler := collector._samplers[pid]).windows < windows and sampler.alive):
            time.sleep(0.001)
        while until_it_samples and not ((opened := collector._samplers[pid]._opened) and opened[-1].sampling):
            time.sleep(0.001)
        if steps:
            time.sleep(1.0)  # what the first window has seen
            source = run / "source-1"
            source.mkdir()
            (source / "steps.bin").write_bytes(bytes(2 * packer("steps").size))
            while not (len(opened) == 2 and opened[-1].sampling):
                time.sleep(0.001)
            time.sleep(1.0)
        status = collector.stop()
    writer.close()
    return status, load(run)


def test_windows_are_joined_on_our_clock(tmp_path: Path) -> None:
    status, run = collect(tmp_path, FAKE, 6)
    windows = len(run.stacks)
    assert windows >= 3
    assert (status.state, status.records, status.dropped) == ("ok", windows + len(run.gil_stacks), 2 * windows)
    assert status.cost_s is not None
    assert status.cost_s > 0
    assert len(run.stack_frames) == 1
    assert (run.stacks["end"] - run.stacks["begin"]).tolist() == [1_990_000] * windows
    assert all(run.stacks["begin"][1:] > run.stacks["end"][:-1]), "each window lies after the one before"
    assert len(values(run, "stacks.clock_slack_s")) == windows
    assert min(values(run, "stacks.period_s")) >= 0.1, "10 samples a second, though the stacks show 2 ms of a window"
    assert [path.name for path in (tmp_path / "run" / "recorder").glob("window-*")] == []


def values(run: Run, name: str) -> list[float]:
    return [float(value) for value in run.samples["value"][run.samples["name"] == run.names.index(name)]]


def test_the_share_of_the_gil_is_the_share_of_samples_with_a_holder(tmp_path: Path) -> None:
    _, run = collect(tmp_path, FAKE, 4)
    looks, lengths = values(run, "stacks.gil_ticks"), values(run, "stacks.gil_window_s")
    assert looks[:1] == [5], "a second, half as often as all threads"
    held = float((run.gil_stacks["end"] - run.gil_stacks["begin"]).sum()) / 1e9
    assert held == pytest.approx(
        sum(30 / count * length for count, length in zip(looks, lengths, strict=True)), rel=1e-3
    )
    assert set(run.gil_stacks["tid"].tolist()) == set(run.stacks["tid"].tolist())


def test_deep_stacks_are_sampled_less_often() -> None:
    assert affordable_rate(20e-6, 0.015, 20, 100) == 100
    assert affordable_rate(0.5e-3, 0.015, 20, 100) == 30
    assert affordable_rate(5e-3, 0.015, 20, 100) == 20, "it is never without samples"
    assert affordable_rate(5e-3, 0.015, 20, 5) == 5


def recorded(plan: WindowPlan, cpu_s: float, start_cpu_s: float, sampled_s: float, *, cut: float = 0.0) -> Any:
    """A window that has ended; `cut`: what it had cost when it handed over."""
    return SimpleNamespace(
        plan=plan, cpu_s=cpu_s, start_cpu_s=start_cpu_s, sampled_s=sampled_s, cut_ns=bool(cut), cut_cpu_s=cut
    )


def run_schedule(schedule: SamplingSchedule, now: float, sample_s: float, windows: int) -> list[WindowPlan]:
    """The plans of windows of a stepping program from `now` on, each with a start of 26 ms."""
    plans = []
    for _ in range(windows):
        plans.append(plan := schedule.plan(now, stepping=True))
        schedule.record(recorded(plan, sample_s * plan.seconds * plan.rate + 0.026, 0.026, plan.seconds))
        now += plan.seconds
    return plans


def test_sampling_is_rare_until_the_program_steps_and_then_begins_anew() -> None:
    schedule = SamplingSchedule(7, 100, 0.0, preempt=True)
    before = schedule.plan(0.0, stepping=False)
    assert (before.rate, before.gil_rate, before.preempt) == (8, 0, True)
    assert not schedule.is_over(before, 0.1, stepping=False)
    assert schedule.is_over(before, 0.0, stepping=True), "the first step ends the window"
    schedule.record(recorded(before, 0.02 + 8 * 4 * 2e-3, 0.02, 4.0))
    assert schedule.plan(4.0, stepping=False).rate == 5, "deep stacks of imports"
    first, *later = run_schedule(schedule, 4.0, 0.4e-3, 6)
    assert (first.seconds, first.gil_rate) == (1, round(first.rate / 2))
    assert first.rate > 40, "a burst"
    assert [plan.seconds for plan in later] == [2, 4, 8, 8, 8]
    assert all(20 <= plan.rate <= 40 for plan in later)


def test_a_window_that_hands_over_is_paid_once_and_says_nothing_about_steps() -> None:
    handed, waited = (SamplingSchedule(7, 100, 0.0, preempt=True) for _ in range(2))
    for schedule in (handed, waited):
        before = schedule.plan(0.0, stepping=False)
    ended = recorded(before, 0.05, 0.02, 3.0, cut=0.05)
    handed.spend(ended.cut_cpu_s)
    first = handed.plan(3.0, stepping=True)
    handed.record(ended)
    waited.record(recorded(before, 0.05, 0.02, 3.0))
    assert waited.plan(3.0, stepping=True) == first
    after = recorded(first, 0.03, 0.02, 1.0)
    handed.record(after)
    waited.record(after)
    assert handed.plan(4.0, stepping=True) == waited.plan(4.0, stepping=True)


def test_the_first_window_of_steps_begins_while_the_one_before_ends(tmp_path: Path) -> None:
    """Their samples do not overlap, and both cost something."""
    slow = (
        PATIENT.replace("json.dump(events", "import time; time.sleep(0.3)\njson.dump(events")
        .replace(
            'event("B", 10, thread, 0), event("B", 10, "main", 3)',
            'event("B", 10, thread, 0), event("B", 10, "main", 3)',
        )
        .replace("2000", "900000")
    )
    status, run = collect(tmp_path, slow, 1, until_it_samples=True, steps=True)
    assert status.state == "ok"
    assert len(run.stacks) == 2
    first, second = np.sort(run.stacks, order="begin")
    assert first["end"] <= second["begin"]


def test_the_cost_of_a_long_run_stays_within_its_budget() -> None:
    schedule = SamplingSchedule(7, 100, 0.0, preempt=False)
    plans = run_schedule(schedule, 0.0, 0.3e-3, 40)
    seconds = sum(plan.seconds for plan in plans)
    cost = sum(0.3e-3 * plan.seconds * plan.rate + 0.026 for plan in plans)
    assert cost / seconds < 0.01
    assert plans[-1].rate == 20, "a window's start is part of the budget"


def test_a_program_without_steps_is_sampled_fully_after_half_a_minute() -> None:
    schedule = SamplingSchedule(7, 100, 0.0, preempt=False)
    assert schedule.plan(29.0, stepping=False).gil_rate == 0
    assert schedule.plan(31.0, stepping=False).gil_rate > 0


def test_a_window_ends_when_its_samples_cost_far_more_than_expected() -> None:
    schedule = SamplingSchedule(7, 100, 0.0, preempt=False)
    plan = schedule.plan(0.0, stepping=True)
    expected = 0.5e-3 * plan.rate * plan.seconds
    assert not schedule.is_over(plan, 1.5 * expected, stepping=True)
    assert schedule.is_over(plan, 2.5 * expected, stepping=True)


def test_a_program_steps_when_two_boundaries_are_on_disk(tmp_path: Path) -> None:
    assert not has_steps(tmp_path)
    table = tmp_path / "source-7" / "boundaries.bin"
    table.parent.mkdir()
    table.write_bytes(bytes(packer("boundaries").size))
    assert not has_steps(tmp_path), "perhaps only the request for the first batch"
    table.write_bytes(bytes(2 * packer("boundaries").size))
    assert has_steps(tmp_path)


@pytest.mark.parametrize("torn", [("a\0.py", 1, "f"), ("a.py", 1, "f\0")])
def test_a_frame_that_was_read_while_it_changed_is_recognized(torn: tuple[str, int, str]) -> None:
    whole = ("a.py", 1, "f")
    assert has_torn_frame(Span(0, 1, 1, 1, (whole, torn), -1))
    assert not has_torn_frame(Span(0, 1, 1, 1, (whole, whole), -1))


@pytest.mark.parametrize(
    ("text", "state", "code", "reason"),
    [
        (
            'echo "Permission Denied: Try running again with elevated permissions"\nexit 1',
            "unavailable",
            "ptrace-forbidden",
            ".*",
        ),
        (
            'echo "Error: Failed to find python version from target process"\necho "Reason: it is no Python"\nexit 1',
            "failed",
            "",
            "py-spy: Error: Failed to find python version from target process Reason: it is no Python",
        ),
        (
            'echo "Error: Failed to get process executable name."\necho "0: No such file (os error 2)"\nexit 1',
            "failed",
            "",
            "no stack samples: the program ended too soon",
        ),
        ('while [ "$1" != --output ]; do shift; done\necho "[{" > "$2"', "failed", "", ".*JSONDecodeError.*"),
    ],
    ids=["forbidden", "failing", "gone", "damaged"],
)
def test_a_py_spy_that_fails(tmp_path: Path, text: str, state: str, code: str, reason: str) -> None:
    status, run = collect(tmp_path, f"#!/bin/sh\n{text}\n", 3)
    assert (status.state, status.code, len(run.stacks)) == (state, code, 0)
    assert re.fullmatch(reason, status.reason)


def test_after_an_error_no_py_spy_is_left(tmp_path: Path) -> None:
    broken_then_endless = f"""#!/bin/sh
case "$*" in *--gil*) exit 1;; esac
if [ -e {tmp_path}/again ]; then kill -STOP $$; fi
touch {tmp_path}/again
while [ "$1" != --output ]; do shift; done
echo "[{{" > "$2"
"""
    status, _ = collect(tmp_path, broken_then_endless, 3)
    assert "JSONDecodeError" in status.reason
    lines = (process.info["cmdline"] or () for process in psutil.process_iter(["cmdline"]))
    assert not [line for line in lines if any(str(tmp_path / "py-spy") in word for word in line)]


def test_without_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pyspy.shutil, "which", lambda *_, **__: None)
    assert StacksCollector().available() == "py-spy is not installed: pip install py-spy"


def test_a_window_of_a_living_process_is_cut_short(tmp_path: Path) -> None:
    """py-spy gets SIGINT and writes; nobody waits for the end of the window."""
    status, run = collect(tmp_path, PATIENT, 1, until_it_samples=True)
    assert (status.state, len(run.stacks)) == ("ok", 1)


TREE = """
import os, subprocess, sys
code, pipes = "print(flush=True); input()", dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
children = [subprocess.Popen([sys.executable, "-c", code, word], **pipes) for word in sys.argv[1:]]
for child in children:
    child.stdout.readline()  # the kernel shows a command line some time after it let the parent go
print(*(child.pid for child in children), flush=True)
input()
for child in children:
    child.communicate(b"\\n")
"""


@contextmanager
def tree(*words: str) -> Iterator[tuple[int, list[int]]]:
    """A Python process and its children, each with a word on its command line."""
    root = subprocess.Popen(
        [sys.executable, "-c", TREE, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert root.stdout is not None
    try:
        yield root.pid, [int(word) for word in root.stdout.readline().split()]
    finally:
        root.communicate("\n")


def test_every_process_of_a_tree_is_sampled_but_helpers(tmp_path: Path) -> None:
    with tree("worker", "multiprocessing.resource_tracker") as (root, (worker, _)):
        assert sampled_processes(root) == [root, worker]


def test_more_processes_than_are_sampled_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "MAX_PROCESSES", 2)
    with tree("a", "b", "c") as (root, children):
        status, run = collect(tmp_path, FAKE, 2, of=root)
    assert status.reason.endswith("the first 2 Python processes were sampled, 2 were left out")
    assert set(run.stacks["pid"].tolist()) <= {root, children[0]}


# ---------------------------------------------------------------- real-time priority

SAMPLER, TARGET = 70, 50


class System:
    """Threads of a sampler, and the core of the thread that it samples."""

    def __init__(self) -> None:
        self.core: int | None = 1
        self.threads = [70, 71]
        self.moved: list[tuple[int, Any]] = []
        self.policies: list[tuple[int, int]] = []

    @property
    def stat(self) -> ProcessStat | None:
        return None if self.core is None else ProcessStat("x", "R", 1, 1, 0.0, 1, 0, 0, self.core)

    def set_affinity(self, tid: int, cores: Any) -> None:
        if tid == 99:
            raise PermissionError
        self.moved.append((tid, cores))


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    made = System()
    monkeypatch.setattr(_pyspy, "read_stat", lambda pid: made.stat if pid == TARGET else None)
    monkeypatch.setattr(_pyspy, "thread_ids", lambda pid: made.threads if pid == SAMPLER else [])
    monkeypatch.setattr(os, "sched_setaffinity", made.set_affinity)
    monkeypatch.setattr(os, "sched_setscheduler", lambda tid, policy, _: made.policies.append((tid, policy)))
    return made


def test_the_sampler_follows_the_thread_and_looks_less_often_while_that_stays(system: System) -> None:
    priority = RealtimePriority([SAMPLER], TARGET)
    priority.follow()
    assert system.moved == [(70, {1}), (71, {1})]
    assert system.policies == [(70, os.SCHED_RR), (71, os.SCHED_RR)]
    soon = priority.pause_s
    priority.follow()
    assert (len(system.moved), priority.pause_s) == (2, 2 * soon)
    system.core, system.threads = 0, [70, 71]
    priority.follow()
    assert (system.moved[2:], priority.pause_s) == ([(70, {0}), (71, {0})], soon)
    system.threads = [70, 71, 72]
    for _ in range(4):
        priority.follow()
    assert system.moved[4:] == [(72, {0})], "only the new one"
    assert not priority.refused
    for _ in range(20):
        priority.follow()
    assert priority.pause_s <= 0.04, "often enough however long nothing moves"


def test_the_sampler_gets_its_cores_and_priority_back(system: System) -> None:
    priority = RealtimePriority([SAMPLER], TARGET)
    priority.follow()
    priority.release(SAMPLER)
    assert system.moved[2:] == [(70, os.sched_getaffinity(0)), (71, os.sched_getaffinity(0))]
    assert system.policies[2:] == [(70, os.SCHED_OTHER), (71, os.SCHED_OTHER)]
    priority.release(SAMPLER)
    assert len(system.moved) == 4


def test_a_refused_move_is_reported_and_an_ended_target_is_ignored(system: System) -> None:
    system.threads = [99]
    priority = RealtimePriority([SAMPLER], TARGET)
    priority.follow()
    assert priority.refused
    system.core = None
    priority.follow()
    assert system.moved == []


def test_the_log_of_a_window_may_be_gone(tmp_path: Path) -> None:
    """A run directory can be deleted while py-spy writes into it."""
    stem = tmp_path / "window-1-all"
    py_spy = PySpy.start("true", WindowPlan(1, 1, 100, 0, preempt=False), stem, gil=False)
    py_spy.log.unlink()
    py_spy.notice_start()
    assert not py_spy.sampling
    py_spy.reap()


@pytest.mark.parametrize("place", ["beside", "listed", "bin of --target"])
def test_py_spy_is_found_where_no_shell_finds_it(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside, scripts, site = (tmp_path / name for name in ("beside", "scripts", "target"))
    package = site / "py_spy-0.4.0.dist-info"
    for folder in (beside, scripts, package, site / "bin"):
        folder.mkdir(parents=True)
    (package / "METADATA").write_text("Name: py-spy\nVersion: 0.4.0\n")
    (package / "RECORD").write_text("../scripts/py-spy,,\n")
    monkeypatch.setattr(sys, "executable", str(beside / "python"))
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "none"))
    monkeypatch.setattr(os, "defpath", "/none")
    monkeypatch.setenv("PATH", "/none")
    assert _pyspy.find_py_spy() is None
    program = {"beside": beside, "listed": scripts, "bin of --target": site / "bin"}[place] / "py-spy"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    found = _pyspy.find_py_spy()
    assert found is not None
    assert Path(found).resolve() == program
    assert StacksCollector().available() is None
