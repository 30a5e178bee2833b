"""Samples a process in a window of py-spy, and chooses which window comes next."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from profiler.core.procfs import ThreadTimes, thread_ids, thread_times, wait_exit
from profiler.record.collectors._pyspy import (
    FOLLOW_S,
    PySpy,
    RealtimePriority,
    Refusal,
    Span,
    WindowPlan,
    active_clocks,
)

# ---------------------------------------------------------------- which window comes next

_STARTUP_WINDOW_S: Final = 8
"""Length of a window before the first step, which ends it."""
_LONGEST_STARTUP_S: Final = 30.0
"""A program without a step until then may have none, and its whole run is of interest."""
_WINDOWS_S: Final = (1, 2, 4, 8)
"""Lengths of the windows from the first step on; the last one repeats. A kill -9 of the recorder loses one of them, and
each starts two processes (13 ms each)."""
_COST: Final = 0.0075
"""Share of a core that sampling one process may take. Its target loses twice that: of a small transformer, 0.5 ms for a
sample of 0.26 ms, the rest by the caches that the sample empties. A run of 10 s so takes some 250 samples."""
_STARTUP_COST: Final = 0.004
"""The same before the first step: the remainder is left for the steps."""
_REPAYMENT_S: Final = 16.0
"""Time in which what was spent beyond the budget is saved again."""
_BURST_S: Final = 0.04
"""CPU seconds that the first window of steps may use beyond the budget: some 100 samples, which make the difference
between a verdict and none for a program that trains for two seconds. Later windows save them again."""
_LOWEST_RATE: Final = 20
"""Samples of all threads a second: fewer leave a run of some seconds without an answer."""
_LOWEST_STARTUP_RATE: Final = 5
"""The stacks of imports are deep: a sample took 1.8 ms."""
_GIL_RATE: Final = 0.5
"""Samples of the GIL's holder for each sample of all threads."""
_SAMPLE_S: Final = 0.0005
"""CPU seconds for a sample of all threads and half a sample of the GIL's holder, until they are measured: 0.25 ms for
shallow stacks, and 0.5 ms at depth 20."""
_OVERDRAWN: Final = 2.0
"""A window that costs so many times its budget ends early: its rate came from stacks that were less deep."""


class SamplingSchedule:
    """How often and how long to sample: rarely until the program steps, then anew at the rate that the budget affords.

    The stacks of imports and of compilation are deeper than those of steps, so each window's rate follows from the cost
    of a sample in the one before. What was not spent before the first step is available to the first window of steps;
    later windows repay what was spent beyond the budget, and save nothing.
    """

    def __init__(self, pid: int, highest_rate: int, began: float, *, preempt: bool) -> None:
        """:param began: when sampling began, on the clock of `plan`."""
        self.preempt = preempt
        self._pid = pid
        self._highest = highest_rate
        self._began = began
        self._spent = 0.0
        self._sample_s = _SAMPLE_S
        self._windows = 0
        self._stepping = False

    def plan(self, now: float, *, stepping: bool) -> WindowPlan:
        """Return the window that comes next.

        :param now: seconds on any clock.
        :param stepping: whether the program steps.
        """
        if stepping and not self._stepping:
            self._windows = 0
            self._sample_s = min(self._sample_s, _SAMPLE_S)
        self._stepping = stepping
        if not stepping and now - self._began < _LONGEST_STARTUP_S:
            rate = affordable_rate(self._sample_s, _STARTUP_COST, _LOWEST_STARTUP_RATE, self._highest)
            return WindowPlan(self._pid, _STARTUP_WINDOW_S, rate, 0, self.preempt)
        seconds = _WINDOWS_S[min(self._windows, len(_WINDOWS_S) - 1)]
        saved = _COST * (now - self._began) - self._spent
        is_first = stepping and not self._windows  # what deep stacks of imports cost is saved later
        extra = (max(0.0, saved) + _BURST_S) / seconds if is_first else min(0.0, saved) / _REPAYMENT_S
        rate = affordable_rate(self._sample_s, _COST + extra, _LOWEST_RATE, self._highest)
        return WindowPlan(self._pid, seconds, rate, max(1, round(_GIL_RATE * rate)), self.preempt)

    def is_over(self, plan: WindowPlan, cpu_s: float, *, stepping: bool) -> bool:
        """Tell whether a window should end early: the program's first step has come, or its samples cost far more than
        its rate was chosen for.

        :param cpu_s: the cost of its samples so far.
        """
        if stepping and not self._stepping:
            return True
        affordable = _OVERDRAWN * max(self._sample_s, _SAMPLE_S) * plan.rate * plan.seconds
        return plan.rate > _LOWEST_RATE and cpu_s > affordable

    def spend(self, cpu_s: float) -> None:
        """Note what a window has cost that still ends when the next one is planned."""
        self._spent += cpu_s

    def record(self, window: SamplingWindow) -> None:
        """Note what a window cost."""
        plan = window.plan
        self._spent += window.cpu_s
        if window.cut_ns:  # its stacks were those of imports, and a part of its cost was noted when it was cut
            self._spent -= window.cut_cpu_s
            return
        samples = plan.rate * min(window.sampled_s, plan.seconds)
        if samples >= 1:
            self._sample_s = max(1e-6, window.cpu_s - window.start_cpu_s) / samples
        self._windows += 1


def affordable_rate(sample_s: float, share: float, lowest: int, highest: int) -> int:
    """Return the rate at which sampling stays within `share` of a core. A sample took 0.25 ms, and 0.015 ms per
    frame."""
    return max(min(lowest, highest), min(highest, int(share / sample_s)))


# ---------------------------------------------------------------- one window

_CLOCK_PERIOD_S: Final = 0.05
"""Between two readings of thread clocks, of about 8 µs a thread."""
_COST_LOOKS: Final = 10
"""At every so many of these readings the CPU time of both py-spys is read, of about 0.2 ms."""
_MAX_THREADS: Final = 64
"""Threads whose clocks are read, besides those that were seen to run Python."""


class WindowRows(NamedTuple):
    """The records of a window, on our clock."""

    spans: list[Span]
    gil_spans: list[Span]
    values: list[tuple[int, list[tuple[int, int, str, float]]]]
    """Rows of the samples table, with the time of each list of them."""
    errors: int = 0


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
                pause = FOLLOW_S[0]
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
