"""Samples the stacks of the target's Python processes from outside, with py-spy, each process in windows of its own.

py-spy writes only when it ends and on a clock of its own: so it records windows of up to 8 s, each with a reading of
our clock before and after; a kill -9 loses one window. Nor does it tell in one pass who holds the GIL: a second py-spy
beside it samples the holder alone. Sampling is rare until the program steps, and then begins anew.

Where it may, it preempts the main thread for each sample (RealtimePriority); elsewhere py-spy stops the target's
threads (some 100 µs), and on a machine whose cores are all busy the samples lean toward waiting, which the status
tells.

Each process has its own py-spys, not one with --subprocesses for all: that one could run on one core only, so only
one process would be sampled rightly, and it samples helper processes too.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import filterfalse
from pathlib import Path
from typing import Any, ClassVar, Final

from profiler.core.procfs import is_alive, is_python, process_tree, read_arguments, wait_exit
from profiler.record.collectors import Context, describe_error
from profiler.record.collectors._pyspy import ENDED_TOO_SOON, Refusal, Span, WindowPlan, find_py_spy, may_preempt
from profiler.record.collectors._sampling import SamplingSchedule, SamplingWindow
from profiler.run.model import CollectorStatus
from profiler.run.store import RECORDER
from profiler.run.tables import packer

MAX_PROCESSES: Final = 9
"""Sampled at a time: eight ranks and their launcher. Each costs a py-spy, and its target a share of every sample."""
_LOOK_S: Final = 0.5
"""Time between two looks for new processes; a process that is not there at two looks is not sampled."""
_STEP_LOOK_S: Final = 0.05
"""Time between two looks for the first steps, of some 20 µs."""
_FIRST_RECORDS: Final = 2
"""Records of steps, or of boundaries, from which a program counts as stepping: its first boundary may be the request
for the first batch, which compilation follows."""
_HELPERS: Final = ("multiprocessing.resource_tracker", "torch._inductor.compile_worker", "_inductor/compile_worker")
"""Python processes that do no work of the program's own, by their command line."""
LEANING: Final = (
    "samples lean toward waiting where all cores are busy: py-spy may not preempt the program "
    "(needs root or the capability SYS_NICE)"
)


class StacksCollector:
    """A thread that gives every Python process of the target a sampler, up to MAX_PROCESSES."""

    name: ClassVar[str] = "stacks"
    levels: ClassVar[tuple[str, ...]] = ("standard", "full")
    start_order: ClassVar[int] = 0

    def available(self) -> str | None:
        program = find_py_spy()
        if program is None:
            return "py-spy is not installed: pip install py-spy"
        self._program = program
        return None

    def describe(self) -> Mapping[str, Any]:
        return {}

    def start(self, context: Context) -> None:
        self._context = context
        self._preempt = may_preempt()
        self._samplers: dict[int, ProcessSampler] = {}
        self._left_out: set[int] = set()
        self._ended = threading.Event()
        self._steps = not context.spec.hooks
        self._cost = 0.0
        self._error = ""
        self._thread = threading.Thread(target=self._run, name="collector stacks", daemon=True)
        self._thread.start()

    def stop(self) -> CollectorStatus:
        """Windows of processes that have ended end by themselves; those of living ones are cut short."""
        self._ended.set()
        self._thread.join()
        samplers = self._samplers.values()
        for sampler in samplers:
            sampler.end()
        for sampler in samplers:
            sampler.join()
        return replace(
            self._status(),
            records=sum(sampler.records for sampler in samplers),
            dropped=sum(sampler.dropped for sampler in samplers),
            cost_s=self._cost + sum(sampler.cost_s for sampler in samplers),
        )

    def _status(self) -> CollectorStatus:
        samplers = self._samplers.values()
        errors = [error for error in (self._error, *(sampler.error for sampler in samplers)) if error]
        if errors:
            return CollectorStatus(self.name, "failed", errors[0])
        if any(sampler.records for sampler in samplers):
            return CollectorStatus(self.name, "ok", "; ".join(self._limitations()))
        refusal = next((sampler.refusal for sampler in samplers if sampler.refusal), None)
        if refusal and refusal.forbidden:
            return CollectorStatus(self.name, "unavailable", refusal.reason, code="ptrace-forbidden")
        reason = refusal.reason if refusal else ENDED_TOO_SOON
        return CollectorStatus(self.name, "failed", reason)

    def _limitations(self) -> list[str]:
        samplers = self._samplers.values()
        killed = sum(sampler.killed_windows for sampler in samplers)
        left_out = len(self._left_out.difference(self._samplers))
        lines = [] if all(sampler.preempts for sampler in samplers) else [LEANING]
        if killed:
            lines.append(f"windows lost because their py-spy was killed: {killed}")
        if left_out:
            lines.append(f"the first {MAX_PROCESSES} Python processes were sampled, {left_out} were left out")
        return lines

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:  # noqa: BLE001 - the edge of a thread, and the status reports it
            self._error = describe_error(error)
        finally:
            self._cost += time.thread_time()

    def _watch(self) -> None:
        """Sample what is there now, then each process that is there at two looks."""
        before = sampled_processes(self._context.pid)
        self._sample(before or [self._context.pid])
        due = time.monotonic() + _LOOK_S
        while not self._ended.wait(_LOOK_S if self._steps else _STEP_LOOK_S):
            self._steps = self._steps or has_steps(self._context.spec.out)
            if time.monotonic() < due:
                continue
            due = time.monotonic() + _LOOK_S
            now = sampled_processes(self._context.pid)
            self._sample(pid for pid in now if pid in before)
            before = now

    def _sample(self, pids: Iterable[int]) -> None:
        for pid in pids:
            if pid in self._samplers:
                continue
            if sum(sampler.alive for sampler in self._samplers.values()) >= MAX_PROCESSES:
                self._left_out.add(pid)
            else:
                self._samplers[pid] = ProcessSampler(
                    self._context, self._program, pid, preempt=self._preempt, stepping=lambda: self._steps
                )


def has_steps(run: Path) -> bool:
    """Tell whether a process of the recorded program steps: its tables of steps or of boundaries grow."""
    return any(
        path.stat().st_size >= _FIRST_RECORDS * packer(table).size
        for table in ("steps", "boundaries")
        for path in run.glob(f"source-*/{table}.bin")
    )


def sampled_processes(pid: int) -> list[int]:
    """Return the Python processes in the tree of `pid`, by generation, without mere helpers."""
    pythons = list(filter(is_python, process_tree(pid)))
    helpers = {pid for pid in pythons[1:] if any(mark in " ".join(read_arguments(pid)) for mark in _HELPERS)}
    return [pid for pid in pythons if pid not in helpers]


# ---------------------------------------------------------------- one process

_SETTLE_S: Final = 0.1
"""py-spy starts (10 to 20 ms) undisturbed by our conversion, so that its clock's zero is better known."""
_RETRY_S: Final = (0.05, 1.0)
"""First and longest pause after a py-spy that could not attach."""
_END_S: Final = 3.0
"""Time that py-spy has to notice that its process has ended, before it gets a signal."""


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


PLUGIN = StacksCollector
