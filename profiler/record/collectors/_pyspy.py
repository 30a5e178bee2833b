"""Runs py-spy, keeps it ahead of the sampled thread, and converts what it wrote. Checked against py-spy 0.4.3.

It converts both formats into spans of stacks per thread.

Chrome trace, for windows of all threads: the only format that keeps the time of each change. With --threads the
outermost frame is `thread (NATIVE ID): NAME`; `ts` counts microseconds from the start; at each sample in which a
thread's stack differs from the one before, frames that went give an E event and frames that came a B event. Samples
with the same stack leave no event, so a span may stand for several samples. A thread that has ended keeps its last
stack until the trace ends.

Speedscope, for windows of the GIL's holder: the only format that tells how often, since the chrome trace leaves no
mark where nobody held the GIL. It has a profile for each thread with its samples in order of time, but without times.
"""

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
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

from profiler.core.procfs import ThreadTimes, read_stat, thread_ids, thread_times
from profiler.run.store import Frame

# ---------------------------------------------------------------- formats


_THREAD: Final = re.compile(r"thread \((\d+)\)")
_CLEAR_SHARE: Final = 0.9
"""A span counts as active when at least this share of the time around it was (idle: was not); between: unknown."""
ThreadClocks = Sequence[tuple[int, Mapping[int, int]]]
"""Readings of thread clocks in order of time: (ns, {tid: ns so far in which it was on a core, or could have run})."""


class Span(NamedTuple):
    """A row of the stacks table."""

    begin: int
    end: int
    pid: int
    tid: int
    frames: tuple[Frame, ...]
    active: int
    """1 on a core, or without one though it could have run; 0 blocked; -1 unknown."""


def active_clocks(readings: Sequence[tuple[int, Mapping[int, ThreadTimes]]]) -> ThreadClocks:
    """Return the active time of each thread so far, at each reading.

    The kernel adds a thread's wait for a core when it gets one. So what a reading shows beyond the time since the
    reading before belongs before that.
    """
    clocks = [(when, {tid: used.cpu_ns + used.wait_ns for tid, used in threads.items()}) for when, threads in readings]
    for (before, early), (after, late) in zip(clocks[-2::-1], clocks[:0:-1], strict=True):
        for tid in early.keys() & late.keys():
            early[tid] = max(early[tid], late[tid] - (after - before))
    return clocks


def spans_of_all_threads(events: Sequence[Mapping[str, Any]], start: int, clocks: ThreadClocks) -> list[Span]:
    """Spans of a chrome trace; `start` is the time (ns) of its zero. They are cut where a thread was gone."""
    open_stacks: dict[int, list[Mapping[str, Any]]] = {}
    since: dict[int, int] = {}
    spans: list[Span] = []
    clocks = clocks if _has_same_thread_ids(events, clocks) else ()
    times = [when for when, _ in clocks]
    for event in events:
        if event["ph"] not in "BE":
            continue
        key, when = event["tid"], int(event["ts"])
        stack = open_stacks.setdefault(key, [])
        if stack and when > since[key]:
            span = _span(stack, start + since[key] * 1000, start + when * 1000)
            if span:
                spans += _with_activity(span, clocks, times)
        since[key] = when
        if event["ph"] == "B":
            stack.append(event)
        elif stack:
            stack.pop()
    return spans


def _has_same_thread_ids(events: Sequence[Mapping[str, Any]], clocks: ThreadClocks) -> bool:
    """Tell whether the trace has the thread ids of this process's view: py-spy shows those of a container's own
    view."""
    named = {int(match[1]) for event in events if (match := _THREAD.match(event["name"]))}
    return not clocks or any(not named.isdisjoint(threads) for _, threads in clocks)


def _span(stack: Sequence[Mapping[str, Any]], begin: int, end: int) -> Span | None:
    """Return the stack as a span; None for a thread without a frame of Python."""
    thread = _THREAD.match(stack[0]["name"])
    if thread is None or len(stack) < 2:
        return None
    frames = tuple((event["args"]["filename"], int(event["args"]["line"] or 0), event["name"]) for event in stack[1:])
    return Span(begin, end, int(stack[0]["pid"]), int(thread[1]), frames, -1)


def _with_activity(span: Span, clocks: ThreadClocks, times: Sequence[int]) -> list[Span]:
    """Return the span with `active` from the clocks around it, cut at the first reading in which its thread is
    missing."""
    last = bisect_left(times, span.begin)
    while last < len(clocks):
        when, threads = clocks[last]
        if span.tid not in threads:
            end = min(span.end, when)
            return [span._replace(end=end)] if end > span.begin else []
        if when >= span.end:
            break
        last += 1
    first = max(0, bisect_right(times, span.begin) - 1)
    last = min(last, len(clocks) - 1)
    if last <= first or span.tid not in clocks[first][1]:
        return [span]
    used = clocks[last][1][span.tid] - clocks[first][1][span.tid]
    share = used / (times[last] - times[first])
    return [span._replace(active=1 if share >= _CLEAR_SHARE else 0 if share <= 1 - _CLEAR_SHARE else -1)]


def spans_of_gil_holder(document: Mapping[str, Any], pid: int, begin: int, observed: int, ticks: int) -> list[Span]:
    """Return a span for each sample, as long as the time between two: together they are the time in which the GIL was
    held.

    Samples are spread evenly over the window; their number is exact.

    :param begin: ns at which the window began.
    :param observed: ns that it lasted.
    :param ticks: how often py-spy looked, with a holder or without one.
    """
    period = observed // max(1, ticks)
    frames = [(frame["file"] or "", int(frame["line"] or 0), frame["name"]) for frame in document["shared"]["frames"]]
    spans: list[Span] = []
    for profile in document["profiles"]:
        stacks = [tuple(frames[index] for index in sample) for sample in profile["samples"] if len(sample) > 1]
        thread = _THREAD.match(stacks[0][0][2]) if stacks else None
        if thread is None:  # a thread without a frame of Python
            continue
        for number, stack in enumerate(stacks):
            middle = begin + (2 * number + 1) * observed // (2 * len(stacks))
            first = middle - period // 2
            spans.append(Span(first, first + period, pid, int(thread[1]), stack[1:], 1))
    return sorted(spans)


# ---------------------------------------------------------------- py-spy


FORBIDDEN: Final = (
    "ptrace is forbidden here: run as root, give the container the capability SYS_PTRACE, "
    "or set kernel.yama.ptrace_scope to 0"
)
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

FOLLOW_S: Final = (0.01, 0.04)
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
        self.pause_s = FOLLOW_S[0]
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
            self.pause_s = min(FOLLOW_S[1], 2 * self.pause_s)
            return
        core, threads = stat.core, [tid for sampler in self._samplers for tid in thread_ids(sampler)]
        if core == self._core and threads == self._threads:
            self.pause_s = min(FOLLOW_S[1], 2 * self.pause_s)
            return
        moving = threads if core != self._core else [tid for tid in threads if tid not in self._threads]
        self._core, self._threads, self.pause_s = core, threads, FOLLOW_S[0]
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
