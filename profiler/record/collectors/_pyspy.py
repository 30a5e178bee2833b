"""One run of py-spy on one process, a window: start it, keep it ahead of the sampled thread, convert what it wrote."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from profiler.core.procfs import read_stat, thread_ids, thread_times, wait_exit
from profiler.record.collectors._traces import Span, spans_of_all_threads, spans_of_gil_holder

FORBIDDEN: Final = (
    "ptrace is forbidden here: run as root, give the container the capability SYS_PTRACE, "
    "or set kernel.yama.ptrace_scope to 0"
)
_CLOCK_PERIOD_S: Final = 0.05
"""Between two readings of thread clocks, of about 8 µs a thread."""
_MAX_THREADS: Final = 64
"""Threads whose clocks are read, besides those that were seen to run Python."""
_COUNTS: Final = re.compile(r"Samples: (\d+) Errors: (\d+)")
_CUT_SHORT: Final = "Stopped sampling because"
"""py-spy logs this when its process exited, or when it got SIGINT."""
ENDED_TOO_SOON: Final = "no stack samples: the program ended too soon"
_NO_PROCESS: Final = re.compile(r"Failed to get process executable name.*\(os error [23]\)", re.DOTALL)
"""py-spy's message where the process has gone: no such file, or no such process."""
_REFUSED: Final = re.compile(r"permission denied|operation not permitted", re.IGNORECASE)


def find_py_spy() -> str | None:
    """The path of py-spy: beside this Python, or found as a shell does."""
    beside = shutil.which("py-spy", path=os.pathsep.join((str(Path(sys.executable).parent), os.defpath)))
    return beside or shutil.which("py-spy")


# ---------------------------------------------------------------- real-time priority

_FOLLOW_S: Final = (0.01, 0.02)
"""Shortest and longest time between two looks. Of a thread that moves some times a second, looks at 20 Hz miss 6% of
the samples."""
_PRIORITY: Final = 1
"""The lowest of the real-time priorities."""


def may_preempt() -> bool:
    """Whether this process may give its children real-time priority."""
    try:
        policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
        os.sched_setscheduler(0, policy, parameters)
    except (OSError, AttributeError):
        return False
    return True


class RealtimePriority:
    """Keeps all threads of the process `sampler` ahead of the main thread of `pid`, on the core where that runs.

    On a machine whose cores are all busy, a sampler of ordinary priority runs when another thread gives a core up, that
    is, when it waits: of a loop that waited 60% of its time, py-spy saw 75 to 100% waiting on two busy cores. With
    real-time priority on the core of the sampled thread it saw 52 to 60%, and the thread need not be stopped besides.
    Needs root or CAP_SYS_NICE. (docs/log.md has the trials.)
    """

    def __init__(self, sampler: int, pid: int) -> None:
        self._sampler = sampler
        self._pid = pid
        self._core: int | None = None
        self._threads: list[int] = []
        self.pause_s = _FOLLOW_S[0]
        """Until the next `follow`, which costs 0.1 ms of a core: longer while the main thread stays on its core."""
        self.refused = False
        """A move was not allowed (a cpuset, for example), so samples lean toward waiting after all."""

    def follow(self) -> None:
        """Move to the core where the main thread runs now."""
        stat = read_stat(self._pid)
        if stat is None:
            return
        core, threads = stat.core, thread_ids(self._sampler)
        if core == self._core and threads == self._threads:
            self.pause_s = min(_FOLLOW_S[1], 2 * self.pause_s)
            return
        moving = threads if core != self._core else [tid for tid in threads if tid not in self._threads]
        self._core, self._threads, self.pause_s = core, threads, _FOLLOW_S[0]
        for tid in moving:
            try:
                os.sched_setaffinity(tid, {core})
                os.sched_setscheduler(tid, os.SCHED_RR, os.sched_param(_PRIORITY))
            except ProcessLookupError:  # it ended meanwhile
                continue
            except OSError:
                self.refused = True

    def release(self) -> None:
        """Give the threads any core and ordinary priority again."""
        for tid in thread_ids(self._sampler) if self._threads else ():
            try:
                os.sched_setscheduler(tid, os.SCHED_OTHER, os.sched_param(0))
                os.sched_setaffinity(tid, os.sched_getaffinity(0))
            except OSError:  # it ended meanwhile
                continue
        self._core, self._threads = None, []


# ---------------------------------------------------------------- windows


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """Which threads of which process a window samples, how often and how long."""

    pid: int
    seconds: int
    rate: int
    """Samples a second."""
    gil: bool
    """Only the thread that holds the GIL; False: every thread."""
    preempt: bool


class WindowRows(NamedTuple):
    """The records of a window, on our clock."""

    spans: list[Span]
    values: list[tuple[int, int, str, float]]
    """Rows of the samples table, without their time."""
    end: int
    errors: int = 0


class Refusal(NamedTuple):
    """Why py-spy recorded nothing."""

    reason: str
    forbidden: bool = False
    """The kernel forbids ptrace."""


@dataclass
class SamplingWindow:
    """A py-spy at work."""

    plan: WindowPlan
    process: subprocess.Popen[bytes]
    output: Path
    log: Path
    begin: int
    python_threads: frozenset[int] = frozenset()
    """Threads that ran Python in the windows before."""
    sampling: int = 0
    """ns at which it was seen to sample; 0: not yet."""
    end: int = 0
    cpu_s: float = 0.0
    start_cpu_s: float = 0.0
    """The part of `cpu_s` before it sampled: some 20 ms, as much as 60 samples of a window of 1 s."""
    lost_priority: bool = False
    """Real-time priority was refused."""
    clocks: list[tuple[int, Mapping[int, int]]] = field(default_factory=list)

    @classmethod
    def start(cls, program: str, plan: WindowPlan, stem: Path, python_threads: frozenset[int]) -> SamplingWindow:
        """Start py-spy in a process group of its own, away from Ctrl-C."""
        output, log = stem.with_suffix(".json"), stem.with_suffix(".log")
        command = [program, "record", "--pid", str(plan.pid), "--output", str(output)]
        command += ["--format", "speedscope" if plan.gil else "chrometrace"]
        command += ["--duration", str(plan.seconds), "--rate", str(plan.rate)]
        command += ["--threads", "--idle", "--full-filenames"]
        if plan.gil:
            command.append("--gil")
        if plan.preempt:
            command.append("--nonblocking")  # the main thread does not run while py-spy has its core
        begin = time.monotonic_ns()
        with open(log, "wb") as file:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, process_group=0
            )
        return cls(plan, process, output, log, begin, python_threads)

    def wait(self) -> bool:
        """Read thread clocks until py-spy has ended; True when it wrote something."""
        priority = RealtimePriority(self.process.pid, self.plan.pid) if self.plan.preempt else None
        due = 0.0
        while True:
            if time.monotonic() >= due:
                due = time.monotonic() + _CLOCK_PERIOD_S
                self._read_clocks()
            pause = min(_CLOCK_PERIOD_S, priority.pause_s) if priority else _CLOCK_PERIOD_S
            if wait_exit(self.process.pid, pause):
                break
            if not self.sampling and self.log.stat().st_size:  # py-spy prints its first line when it has attached
                self.sampling = time.monotonic_ns()
                times = thread_times(self.process.pid, thread_ids(self.process.pid))
                self.start_cpu_s = sum(thread.cpu_ns for thread in times.values()) / 1e9
            if priority and self.sampling:  # it starts and writes (20 ms each) on any core
                if self.output.exists():  # made after the last sample, and written then
                    priority.release()
                else:
                    priority.follow()
        self.lost_priority = priority is not None and priority.refused
        self.end = time.monotonic_ns()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s = usage.ru_utime + usage.ru_stime
        return self.process.returncode == 0 and self.output.exists()

    @property
    def killed(self) -> bool:
        """Whether a signal ended it, so that it left no trace."""
        return self.process.returncode is not None and self.process.returncode < 0

    def _read_clocks(self) -> None:
        if self.plan.gil:
            return
        tids = thread_ids(self.plan.pid)
        if len(tids) > _MAX_THREADS:
            tids = sorted({*tids[:_MAX_THREADS], *self.python_threads.intersection(tids)})
        times = thread_times(self.plan.pid, tids)
        self.clocks.append((time.monotonic_ns(), {tid: thread.cpu_ns for tid, thread in times.items()}))

    def signal(self, number: signal.Signals) -> None:
        """SIGINT: write what there is, and end."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def convert(self) -> WindowRows:
        """Read and remove its files."""
        content = self.output.read_bytes()
        log = self.log.read_text(errors="replace")
        self.output.unlink()
        self.log.unlink()
        counts = _COUNTS.search(log)
        samples, errors = (int(counts[1]), int(counts[2])) if counts else (0, 0)
        document = json.loads(content)
        if self.plan.gil:
            rows = self._gil_rows(document, cut_short=_CUT_SHORT in log)
        else:
            rows = self._thread_rows(document, samples)
        return rows._replace(errors=errors)

    def _thread_rows(self, events: Sequence[Mapping[str, object]], samples: int) -> WindowRows:
        """The trace's zero lies between our two clock readings; the middle is taken."""
        if not events:
            return WindowRows([], [], self.end)
        slack = max(0, self.end - self.begin - max(int(str(event["ts"])) for event in events) * 1000)
        spans = spans_of_all_threads(events, self.begin + slack // 2, self.clocks)
        pid = self.plan.pid
        values = [(pid, 0, "stacks.clock_slack_s", slack / 2e9)]
        if samples:
            values.append((pid, 0, "stacks.period_s", sum(s.end - s.begin for s in spans) / samples / 1e9))
        return WindowRows(spans, values, self.end)

    def _gil_rows(self, document: Mapping[str, object], *, cut_short: bool) -> WindowRows:
        """py-spy looks seconds x rate times, at random moments: a window lasts about as long as it was asked to.

        One that was cut short looked about as often as its time allows.
        """
        begin = self.sampling or self.begin
        observed = self.end - begin
        ticks = self.plan.seconds * self.plan.rate
        if cut_short:
            ticks = max(1, round(observed / 1e9 * self.plan.rate))
        pid = self.plan.pid
        spans = spans_of_gil_holder(document, pid, begin, observed, ticks)
        values = [(pid, 0, "stacks.gil_window_s", observed / 1e9), (pid, 0, "stacks.gil_ticks", float(ticks))]
        return WindowRows(spans, values, begin + observed)

    def refusal(self) -> Refusal:
        """Why it ended without a trace; removes its files."""
        self.output.unlink(missing_ok=True)
        try:
            log = self.log.read_text(errors="replace")
            self.log.unlink()
        except OSError as error:
            return Refusal(f"py-spy left no log: {error.strerror}")
        if _REFUSED.search(log):
            return Refusal(FORBIDDEN, forbidden=True)
        if _NO_PROCESS.search(log):
            return Refusal(ENDED_TOO_SOON)
        lines = [line.strip() for line in log.splitlines() if line.startswith(("Error:", "Reason:"))]
        return Refusal("py-spy: " + (" ".join(lines) or " ".join(log.split())[-200:] or "no reason given"))
