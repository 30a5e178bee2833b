"""Samples a window of a process: starts py-spy, keeps it ahead of the sampled thread, converts what it wrote."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

from profiler.core.procfs import ThreadTimes, read_stat, thread_ids, thread_times, wait_exit
from profiler.record.collectors._traces import (
    Span,
    ThreadClocks,
    active_clocks,
    spans_of_all_threads,
    spans_of_gil_holder,
)

FORBIDDEN: Final = (
    "ptrace is forbidden here: run as root, give the container the capability SYS_PTRACE, "
    "or set kernel.yama.ptrace_scope to 0"
)
_CLOCK_PERIOD_S: Final = 0.05
"""Between two readings of thread clocks, of about 8 µs a thread."""
_COST_LOOKS: Final = 10
"""At every so many of these readings the CPU time of both py-spys is read, of about 0.2 ms."""
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
    """Return the path of py-spy: beside this Python, where pip has put it, or found as a shell does."""
    folders = [str(Path(sys.executable).parent), sysconfig.get_path("scripts")]
    with suppress(metadata.PackageNotFoundError):
        package = metadata.distribution("py-spy")
        folders += [str(Path(file.locate()).parent) for file in package.files or () if file.name == "py-spy"]
        folders.append(str(package.locate_file("bin")))  # with `pip install --target`, the listed place is wrong
    return shutil.which("py-spy", path=os.pathsep.join((*folders, os.environ.get("PATH") or os.defpath, os.defpath)))


# ---------------------------------------------------------------- real-time priority

_FOLLOW_S: Final = (0.01, 0.04)
"""Shortest and longest time between two looks. Of a thread that moves some times a second, looks at 20 Hz miss 6% of
the samples; the time doubles only while the thread stays on its core."""
_THREAD_LOOKS: Final = 4
"""At every so many looks, threads that py-spy has started meanwhile are looked for: it has all of them soon."""
_PRIORITY: Final = 1
"""The lowest of the real-time priorities."""


def may_preempt() -> bool:
    """Tell whether this process may give its children real-time priority."""
    try:
        policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
        os.sched_setscheduler(0, policy, parameters)
    except (OSError, AttributeError):
        return False
    return True


class RealtimePriority:
    """Keeps all threads of the processes `samplers` ahead of the main thread of `pid`, on the core where that runs.

    On a machine whose cores are all busy, a sampler of ordinary priority runs when another thread gives a core up, that
    is, when it waits: of a loop that waited 60% of its time, py-spy saw 75 to 100% waiting on two busy cores. With
    real-time priority on the core of the sampled thread it saw 52 to 60%, and the thread need not be stopped besides.
    Needs root or CAP_SYS_NICE. (docs/log.md has the trials.)
    """

    def __init__(self, samplers: Iterable[int], pid: int) -> None:
        self._samplers = list(samplers)
        self._pid = pid
        self._core: int | None = None
        self._threads: list[int] = []
        self._looks = 0
        self.pause_s = _FOLLOW_S[0]
        """Until the next `follow`, which costs 0.1 ms of a core: longer while the main thread stays on its core."""
        self.refused = False
        """A move was not allowed (a cpuset, for example), so samples lean toward waiting after all."""

    def follow(self) -> None:
        """Move to the core where the main thread runs now."""
        stat = read_stat(self._pid)
        if stat is None:
            return
        self._looks += 1
        if stat.core == self._core and self._looks % _THREAD_LOOKS:
            self.pause_s = min(_FOLLOW_S[1], 2 * self.pause_s)
            return
        core, threads = stat.core, [tid for sampler in self._samplers for tid in thread_ids(sampler)]
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

    def release(self, sampler: int) -> None:
        """Give the threads of `sampler` any core and ordinary priority again, and follow them no longer."""
        if sampler not in self._samplers:
            return
        self._samplers.remove(sampler)
        for tid in thread_ids(sampler) if self._threads else ():
            try:
                os.sched_setscheduler(tid, os.SCHED_OTHER, os.sched_param(0))
                os.sched_setaffinity(tid, os.sched_getaffinity(0))
            except OSError:  # it ended meanwhile
                continue


# ---------------------------------------------------------------- windows


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """Which process a window samples, how often and how long."""

    pid: int
    seconds: int
    rate: int
    """Samples of all threads a second."""
    gil_rate: int
    """Samples of the thread that holds the GIL, a second; 0: none."""
    preempt: bool


class WindowRows(NamedTuple):
    """The records of a window, on our clock."""

    spans: list[Span]
    gil_spans: list[Span]
    values: list[tuple[int, list[tuple[int, int, str, float]]]]
    """Rows of the samples table, with the time of each list of them."""
    errors: int = 0


class Refusal(NamedTuple):
    """Why py-spy recorded nothing."""

    reason: str
    forbidden: bool = False
    """The kernel forbids ptrace."""


@dataclass
class PySpy:
    """One py-spy at work."""

    plan: WindowPlan
    gil: bool
    """It samples only the thread that holds the GIL; False: every thread."""
    process: subprocess.Popen[bytes]
    output: Path
    log: Path
    begin: int
    sampling: int = 0
    """ns at which it was seen to sample; 0: not yet."""
    end: int = 0
    """ns at which it had ended; 0: not yet."""
    cpu_s: float = 0.0
    start_cpu_s: float = 0.0
    """The part of `cpu_s` before it sampled: some 20 ms, as much as 60 samples of a window of 1 s."""

    @classmethod
    def start(cls, program: str, plan: WindowPlan, stem: Path, *, gil: bool) -> PySpy:
        """Start py-spy in a process group of its own, away from Ctrl-C."""
        output, log = stem.with_suffix(".json"), stem.with_suffix(".log")
        command = [program, "record", "--pid", str(plan.pid), "--output", str(output)]
        command += ["--format", "speedscope" if gil else "chrometrace"]
        command += ["--duration", str(plan.seconds), "--rate", str(plan.gil_rate if gil else plan.rate)]
        command += ["--threads", "--idle", "--full-filenames"]
        if gil:
            command.append("--gil")
        if plan.preempt:
            command.append("--nonblocking")  # the main thread does not run while py-spy has its core
        begin = time.monotonic_ns()
        with open(log, "wb") as file:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, process_group=0
            )
        return cls(plan, gil, process, output, log, begin)

    @property
    def rate(self) -> int:
        return self.plan.gil_rate if self.gil else self.plan.rate

    @property
    def wrote(self) -> bool:
        return self.process.returncode == 0 and self.output.exists()

    @property
    def killed(self) -> bool:
        """Whether a signal ended it, so that it left no trace."""
        return self.process.returncode is not None and self.process.returncode < 0

    def signal(self, number: signal.Signals) -> None:
        """SIGINT: write what there is, and end."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def cpu_so_far(self) -> float:
        """Return the CPU seconds that it has used until now, without its start."""
        times = thread_times(self.process.pid, thread_ids(self.process.pid))
        return sum(thread.cpu_ns for thread in times.values()) / 1e9 - self.start_cpu_s

    def notice_start(self) -> None:
        """Note when it begins to sample: it prints its first line when it has attached."""
        with suppress(FileNotFoundError):  # the run directory was deleted, while py-spy goes on
            if not self.sampling and self.log.stat().st_size:
                self.sampling = time.monotonic_ns()
                self.start_cpu_s = self.cpu_so_far()

    def reap(self) -> None:
        """Collect its exit status and its CPU time; it has ended."""
        self.end = time.monotonic_ns()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s = usage.ru_utime + usage.ru_stime

    def remove(self) -> str:
        """Remove its files and return its log."""
        self.output.unlink(missing_ok=True)
        log = self.log.read_text(errors="replace")
        self.log.unlink()
        return log

    def spans_of_all_threads(self, clocks: ThreadClocks) -> tuple[list[Span], list[tuple[int, int, str, float]], int]:
        """Return the spans, the rows of the samples table and the number of errors.

        The trace's zero lies between our two clock readings; the middle is taken.
        """
        events = json.loads(self.output.read_bytes())
        samples, errors = _counts(self.remove())
        if not events:
            return [], [], errors
        slack = max(0, self.end - self.begin - max(int(event["ts"]) for event in events) * 1000)
        spans = spans_of_all_threads(events, self.begin + slack // 2, clocks)
        pid = self.plan.pid
        values = [(pid, 0, "stacks.clock_slack_s", slack / 2e9)]
        if samples:
            # a thread that ends the interpreter is still sampled, without a stack
            mean = sum(s.end - s.begin for s in spans) / samples / 1e9
            values.append((pid, 0, "stacks.period_s", max(mean, 1 / self.rate)))
        return spans, values, errors

    def spans_of_gil_holder(self) -> tuple[list[Span], list[tuple[int, int, str, float]], int]:
        """Return the same for the holder of the GIL.

        py-spy looks seconds x rate times, at random moments: a window lasts about as long as it was asked to. One that
        was cut short looked about as often as its time allows. A look that failed is none.
        """
        document = json.loads(self.output.read_bytes())
        log = self.remove()
        _, errors = _counts(log)
        begin = self.sampling or self.begin
        observed = self.end - begin
        ticks = self.plan.seconds * self.rate
        if _CUT_SHORT in log:
            ticks = round(observed / 1e9 * self.rate)
        ticks = max(1, ticks - errors)
        pid = self.plan.pid
        spans = spans_of_gil_holder(document, pid, begin, observed, ticks)
        values = [(pid, 0, "stacks.gil_window_s", observed / 1e9), (pid, 0, "stacks.gil_ticks", float(ticks))]
        return spans, values, errors

    def refusal(self) -> Refusal:
        """Tell why it ended without a trace; removes its files."""
        try:
            log = self.remove()
        except OSError as error:
            return Refusal(f"py-spy left no log: {error.strerror}")
        if _REFUSED.search(log):
            return Refusal(FORBIDDEN, forbidden=True)
        if _NO_PROCESS.search(log):
            return Refusal(ENDED_TOO_SOON)
        lines = [line.strip() for line in log.splitlines() if line.startswith(("Error:", "Reason:"))]
        return Refusal("py-spy: " + (" ".join(lines) or " ".join(log.split())[-200:] or "no reason given"))


def _counts(log: str) -> tuple[int, int]:
    """Return the numbers of samples and of errors."""
    counts = _COUNTS.search(log)
    return (int(counts[1]), int(counts[2])) if counts else (0, 0)


@dataclass
class SamplingWindow:
    """One py-spy that samples every thread, and one beside it that samples only the thread that holds the GIL."""

    plan: WindowPlan
    py_spys: tuple[PySpy, ...]
    python_threads: frozenset[int] = frozenset()
    """Threads that ran Python in the windows before."""
    lost_priority: bool = False
    """Real-time priority was refused."""
    clocks: list[tuple[int, Mapping[int, ThreadTimes]]] = field(default_factory=list)
    cut_ns: int = 0
    """When it was cut short, so that the next window samples from then on; 0: it was not."""
    cut_cpu_s: float = 0.0
    """CPU seconds that it had cost then."""

    @classmethod
    def start(cls, program: str, plan: WindowPlan, stem: Path, python_threads: frozenset[int]) -> SamplingWindow:
        kinds = (False, True) if plan.gil_rate else (False,)
        started = []
        for gil in kinds:
            started.append(
                PySpy.start(program, plan, stem.with_name(f"{stem.name}-{'gil' if gil else 'all'}"), gil=gil)
            )
        return cls(plan, tuple(started), python_threads)

    def wait(self, is_over: Callable[[float], bool], hand_over: Callable[[], bool] = lambda: False) -> bool:
        """Read thread clocks until the py-spys have ended; True when the one of all threads wrote something.

        :param is_over: whether the window should end early, from the CPU seconds that sampling had used half a second
            ago at most; called about 20 times a second while it samples.
        :param hand_over: whether the next window begins while this one, which should end early, still ends; called
            after `cut_ns` is set.
        """
        pids = (py_spy.process.pid for py_spy in self.py_spys)
        priority = RealtimePriority(pids, self.plan.pid) if self.plan.preempt else None
        due, ending, is_ending, used = 0.0, False, False, 0.0
        last_sample = max(py_spy.begin for py_spy in self.py_spys) + self.plan.seconds * 1_000_000_000
        while running := [py_spy for py_spy in self.py_spys if not py_spy.end]:
            if has_read_clocks := time.monotonic() >= due:
                due = time.monotonic() + _CLOCK_PERIOD_S
                self._read_clocks()
                sampling = all(py_spy.sampling for py_spy in running)
                if sampling and not is_ending and len(self.clocks) % _COST_LOOKS == 0:
                    used = sum(py_spy.cpu_so_far() for py_spy in running)
                if sampling and not ending and is_over(used):
                    ending, self.cut_ns, self.cut_cpu_s = True, time.monotonic_ns(), used
                    self.signal(signal.SIGINT)
                    if not hand_over():
                        self.cut_ns = 0
            is_ending = ending or time.monotonic_ns() > last_sample
            pause = min(_CLOCK_PERIOD_S, priority.pause_s) if priority else _CLOCK_PERIOD_S
            if is_ending:
                pause = _FOLLOW_S[0]
            for number, py_spy in enumerate(running):
                if wait_exit(py_spy.process.pid, 0.0 if number else pause):
                    py_spy.reap()
                    continue
                py_spy.notice_start()
                # the output is made after the last sample, and written then, on any core
                if priority and (is_ending or has_read_clocks) and py_spy.output.exists():
                    priority.release(py_spy.process.pid)
            if priority and self.sampling:  # it starts on any core
                priority.follow()
        self.lost_priority = priority is not None and priority.refused
        return self.py_spys[0].wrote

    @property
    def cpu_s(self) -> float:
        return sum(py_spy.cpu_s for py_spy in self.py_spys)

    @property
    def start_cpu_s(self) -> float:
        return sum(py_spy.start_cpu_s for py_spy in self.py_spys)

    @property
    def preempted_s(self) -> float:
        """CPU seconds of samples that were taken ahead of the main thread, on its core."""
        ahead = self.plan.preempt and not self.lost_priority and all(py_spy.sampling for py_spy in self.py_spys)
        return max(0.0, self.cpu_s - self.start_cpu_s) if ahead else 0.0

    @property
    def sampled_s(self) -> float:
        """Seconds during which every thread was sampled."""
        py_spy = self.py_spys[0]
        return (py_spy.end - py_spy.sampling) / 1e9 if py_spy.sampling else 0.0

    @property
    def sampling(self) -> bool:
        """Whether each of them samples or has sampled. One that has ended already may never have been seen at work."""
        return all(py_spy.sampling or py_spy.end for py_spy in self.py_spys)

    @property
    def killed(self) -> bool:
        return any(py_spy.killed for py_spy in self.py_spys)

    def _read_clocks(self) -> None:
        tids = thread_ids(self.plan.pid)
        if len(tids) > _MAX_THREADS:
            tids = sorted({*tids[:_MAX_THREADS], *self.python_threads.intersection(tids)})
        times = thread_times(self.plan.pid, tids)
        self.clocks.append((time.monotonic_ns(), times))

    def signal(self, number: signal.Signals) -> None:
        for py_spy in self.py_spys:
            py_spy.signal(number)

    def convert(self) -> WindowRows:
        """Read and remove the files of a window that wrote something."""
        spans, rows, errors = self.py_spys[0].spans_of_all_threads(active_clocks(self.clocks))
        if self.cut_ns:  # what the next window saw is not to count twice
            spans = [span._replace(end=min(span.end, self.cut_ns)) for span in spans if span.begin < self.cut_ns]
        gil_spans: list[Span] = []
        rows.append((self.plan.pid, 0, "stacks.preempted_s", self.preempted_s))
        values = [(self.py_spys[0].end, rows)]
        for py_spy in self.py_spys[1:]:
            if py_spy.wrote:
                gil_spans, rows, gil_errors = py_spy.spans_of_gil_holder()
                values.append((py_spy.end, rows))
                errors += gil_errors
            else:
                py_spy.refusal()
        return WindowRows(spans, gil_spans, values, errors)

    def refusal(self) -> Refusal:
        """Tell why it ended without a trace; removes its files."""
        first, *_ = [py_spy.refusal() for py_spy in self.py_spys]
        return first
