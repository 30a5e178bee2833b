"""Samples one process in window after window of py-spy, in a thread of the recorder."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import filterfalse
from typing import Final

from profiler.core.procfs import is_alive, wait_exit
from profiler.record.collectors import Context, describe_error
from profiler.record.collectors._pyspy import Refusal, SamplingWindow, WindowPlan
from profiler.record.collectors._traces import Span
from profiler.run.store import RECORDER

_SETTLE_S: Final = 0.1
"""py-spy starts (10 to 20 ms) undisturbed by our conversion, so that its clock's zero is better known."""
_RETRY_S: Final = (0.05, 1.0)
"""First and longest pause after a py-spy that could not attach."""
_END_S: Final = 3.0
"""Time that py-spy has to notice that its process has ended, before it gets a signal."""


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


# ---------------------------------------------------------------- one process


class _Following(threading.Thread):
    """Follows a window until it has ended. The recorder can end without it."""

    def __init__(self, window: SamplingWindow, is_over: Callable[[float], bool], stepping: Callable[[], bool]) -> None:
        super().__init__(name=f"window of {window.plan.pid}", daemon=True)
        self.window = window
        self.is_over = threading.Event()
        """It has ended, or hands over to the next window."""
        self.cost_s = 0.0
        """CPU seconds of this thread."""
        self._should_end, self._stepping = is_over, stepping
        self._wrote = False
        self._error: Exception | None = None
        self.start()

    def run(self) -> None:
        """Wait for the window."""
        try:
            self._wrote = self.window.wait(self._should_end, self._hand_over)
        except Exception as error:  # noqa: BLE001 - `result` raises it in the sampler's thread
            self._error = error
        finally:
            self.cost_s = time.thread_time()
            self.is_over.set()

    def _hand_over(self) -> bool:
        # a window with the GIL's holder would count its time twice beside the next one
        hands_over = self._stepping() and not self.window.plan.gil_rate
        if hands_over:
            self.is_over.set()
        return hands_over

    def result(self) -> bool:
        """Wait until it has ended, and tell whether it wrote something."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._wrote


class ProcessSampler:
    """Keeps one py-spy at work on `pid` until that ends, or `end`."""

    def __init__(
        self, context: Context, program: str, pid: int, *, preempt: bool, stepping: Callable[[], bool]
    ) -> None:
        """:param program: the path of py-spy.
        :param stepping: whether the recorded program steps.
        """
        self.pid = pid
        self.records = self.dropped = self.windows = self.killed_windows = 0
        self.cost_s = 0.0
        self.refusal: Refusal | None = None
        self.error = ""
        self._context = context
        self._program = program
        self._stepping = stepping
        self._schedule = SamplingSchedule(pid, context.spec.stack_rate, time.monotonic(), preempt=preempt)
        self._python_threads: frozenset[int] = frozenset()
        self._opened: deque[SamplingWindow] = deque(maxlen=2)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"stacks of {pid}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def preempts(self) -> bool:
        return self._schedule.preempt

    def end(self) -> None:
        """Open no other window; the one of a living process writes what it has."""
        self._ended.set()
        if is_alive(self.pid):
            self._signal(signal.SIGINT)

    def join(self) -> None:
        """Wait for the thread. py-spy notices that its process has ended; one that does not gets signals."""
        self._ended.set()
        for number in (signal.SIGINT, signal.SIGKILL):
            self._thread.join(_END_S)
            if self._thread.is_alive():
                self._signal(number)
        self._thread.join()

    def _signal(self, number: signal.Signals) -> None:
        for window in tuple(self._opened):
            window.signal(number)

    def _run(self) -> None:
        try:
            self._record()
        except Exception as error:  # noqa: BLE001 - the edge of a thread, and the status reports it
            self.error = describe_error(error)
            self._signal(signal.SIGKILL)
        finally:
            self.cost_s += time.thread_time()
            # a job of hours may start processes without end: nothing large is kept of those that have ended
            self._python_threads = frozenset()

    def _record(self) -> None:
        """While one window records, the one before is converted. The first window of steps begins while the one before
        it still ends: a program may train for less than a second."""
        pause = _RETRY_S[0]
        done: _Following | None = None
        while not self._ended.is_set() and is_alive(self.pid):
            window = self._open(self._schedule.plan(time.monotonic(), stepping=self._stepping()))
            following = _Following(window, partial(self._is_over, window.plan), self._stepping)
            if done:
                following.join(_SETTLE_S)
                self._write(done)
                done = None
            following.is_over.wait()
            if window.cut_ns:
                self._schedule.spend(window.cut_cpu_s)
                done = following
            elif self._note(following):
                done, pause = following, _RETRY_S[0]
            else:
                self._ended.wait(pause)
                pause = min(_RETRY_S[1], pause * 2)
        if done:
            self._write(done)

    def _note(self, following: _Following) -> bool:
        """Wait until a window has ended, note what it cost, and tell whether it wrote something."""
        window, wrote = following.window, following.result()
        self._schedule.preempt &= not window.lost_priority
        self.cost_s += window.cpu_s + following.cost_s
        if wrote:
            self._schedule.record(window)
        else:
            killed, refusal = window.killed, window.refusal()
            self.killed_windows += killed and not self._ended.is_set()
            if not self._ended.is_set() or not self.refusal:  # one that was ended by us gives no better reason
                self.refusal = refusal
        return wrote

    def _is_over(self, plan: WindowPlan, cpu_s: float) -> bool:
        return self._schedule.is_over(plan, cpu_s, stepping=self._stepping())

    def _open(self, plan: WindowPlan) -> SamplingWindow:
        self.windows += 1
        stem = self._context.spec.out / RECORDER / f"window-{self.pid}-{self.windows}"
        window = SamplingWindow.start(self._program, plan, stem, self._python_threads)
        self._opened.append(window)
        if self._ended.is_set():  # `end` came between the look at it and the start
            wait_exit(window.py_spys[0].process.pid, _SETTLE_S)
            window.signal(signal.SIGINT)
        return window

    def _write(self, following: _Following) -> None:
        if following.window.cut_ns and not self._note(following):
            return
        converted = following.window.convert()
        writer = self._context.writer
        spans, gil_spans = (
            list(filterfalse(has_torn_frame, spans)) for spans in (converted.spans, converted.gil_spans)
        )
        writer.stacks(spans)
        writer.stacks(gil_spans, table="gil_stacks")
        for end, rows in converted.values:
            writer.samples(end, rows)
        self._python_threads = self._python_threads.union(span.tid for span in spans)
        self.records += len(spans) + len(gil_spans)
        torn = len(converted.spans) + len(converted.gil_spans) - len(spans) - len(gil_spans)
        self.dropped += converted.errors + torn


def has_torn_frame(span: Span) -> bool:
    """Tell whether a frame was read while the running thread changed it: its names are then any bytes."""
    return any("\0" in file or "\0" in function for file, _, function in span.frames)
