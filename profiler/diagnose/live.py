"""Diagnoses a running program, and decides when enough of it has been recorded.

What can be read from outside tells of the last seconds; the rules tell of what has been recorded so far.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from typing import Any, Final, TypeVar

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.finding import Confidence, Finding
from profiler.core.live import GpuUse, ProcessUse, Snapshot, ThreadUse
from profiler.core.machine import estimate_throttling
from profiler.diagnose.device import BUSY
from profiler.diagnose.model import LiveDiagnosis, LiveLimit

SPAN_S: Final = 5.0
"""Seconds of readings that are averaged, so that the diagnosis does not change with every one of them."""
STALLED: Final = 5.0
"""A program is stalled if it took no step for this many step times, and for at least this many seconds."""
_IDLE_GPU: Final = 0.5
"""If kernels run for less than this share of the time, a GPU is taken to wait for a busy host."""
_CROWDED: Final = 0.3
"""Share of time without a free core from which there are too few cores."""
_WORKING: Final = 0.5
"""Cores from which a worker is working. One that is ahead of the program waits for a free place in the queue."""
_MUCH: Final = 0.3
"""Share of the last seconds from which a recorded part of the steps is named."""
_ON_DISK: Final = "D"
Use = TypeVar("Use", ThreadUse, ProcessUse, GpuUse)


def diagnose_live(snapshot: Snapshot) -> LiveDiagnosis:
    thread = snapshot.training
    if snapshot.interval is None or thread is None or thread.cpu is None:
        return LiveDiagnosis(LiveLimit.UNKNOWN)
    busy = [gpu.utilization for gpu in snapshot.gpus if gpu.utilization is not None]
    gpu = sum(busy) / len(busy) if busy else None
    steps, part, part_share, part_window = snapshot.steps, "", 0.0, 0.0
    stalled = None
    if steps:
        name, share = max(steps.parts.items(), key=lambda item: item[1], default=("", 0.0))
        if share >= _MUCH:
            part, part_share, part_window = name, share, steps.window
        if steps.since_last > max(STALLED, STALLED * (steps.step_time or 0.0)):
            stalled = steps.since_last
    delayed = min(1.0, thread.delayed or 0.0)
    all_delays = sum(use.delayed or 0.0 for use in snapshot.threads)
    throttling = estimate_throttling(snapshot.throttled or 0.0, delayed, all_delays)
    busy_workers = sum(worker.cpu is not None and worker.cpu >= _WORKING for worker in snapshot.workers)
    return LiveDiagnosis(
        _limit(snapshot, thread, gpu, part, busy_workers),
        stalled,
        thread.role,
        min(1.0, thread.cpu),
        part,
        part_share,
        part_window,
        gpu,
        snapshot.cpu,
        snapshot.cores,
        delayed * (1 - throttling.share),
        busy_workers,
        len(snapshot.workers),
        delayed * throttling.share,
    )


def _limit(snapshot: Snapshot, thread: ThreadUse, gpu: float | None, part: str, busy_workers: int) -> LiveLimit:
    host_busy = thread.cpu is not None and thread.cpu >= BUSY
    if gpu is not None and gpu >= BUSY:
        return LiveLimit.GPU
    if (thread.delayed or 0.0) >= _CROWDED:  # before the CPU: its cores are busy, but with other work
        return LiveLimit.CORES
    if gpu is not None:
        if host_busy:
            return LiveLimit.HOST if gpu < _IDLE_GPU else LiveLimit.HOST_OR_WAITS
    else:
        if snapshot.cpu is not None and snapshot.cpu >= BUSY * snapshot.cores and snapshot.cores > 1:
            return LiveLimit.CPU
        if host_busy:
            return LiveLimit.THREAD
    if part:
        return LiveLimit.RECORDED_PART
    if busy_workers and (gpu is None or gpu < _IDLE_GPU):
        return LiveLimit.WORKERS
    if thread.state == _ON_DISK:
        return LiveLimit.DISK
    return LiveLimit.WAIT_FOR_GPU if gpu is not None and gpu >= _IDLE_GPU else LiveLimit.WAIT


class RecentMean:
    """The mean of the snapshots of the last SPAN_S."""

    def __init__(self) -> None:
        self._recent: deque[Snapshot] = deque()

    def update(self, snapshot: Snapshot) -> Snapshot:
        """`snapshot` with its rates of CPU and GPU as they were on average; a process that is new or has ended is not
        averaged."""
        if snapshot.interval is None:
            return snapshot
        recent = self._recent
        recent.append(snapshot)
        while len(recent) > 1 and sum(old.interval or 0.0 for old in recent) > SPAN_S + snapshot.interval / 2:
            recent.popleft()
        past = list(recent)
        cpu = _mean((old.cpu, old.interval) for old in past)
        return dataclasses.replace(
            snapshot,
            cpu=cpu if snapshot.cpu is not None else None,
            threads=_averaged(past, lambda old: old.threads, lambda use: (use.pid, use.tid), ("cpu", "delayed")),
            processes=_averaged(past, lambda old: old.processes, lambda use: use.pid, ("cpu",)),
            gpus=_averaged(past, lambda old: old.gpus, lambda use: use.index, ("utilization",)),
        )


def _averaged(
    past: Sequence[Snapshot],
    uses: Callable[[Snapshot], tuple[Use, ...]],
    key: Callable[[Use], Hashable],
    fields: tuple[str, ...],
) -> tuple[Use, ...]:
    """Return the uses of the last snapshot, in its order, with `fields` weighted by the lengths of the intervals."""
    history: dict[Hashable, list[tuple[Use, float | None]]] = {}
    for snapshot in past:
        for use in uses(snapshot):
            history.setdefault(key(use), []).append((use, snapshot.interval))

    def averaged(use: Use) -> Use:
        means: dict[str, Any] = {
            name: _mean((getattr(old, name), length) for old, length in history[key(use)]) for name in fields
        }
        return dataclasses.replace(use, **means)

    return tuple(map(averaged, uses(past[-1])))


def _mean(values: Iterable[tuple[float | None, float | None]]) -> float | None:
    measured = [(value, length) for value, length in values if value is not None and length]
    total = sum(length for _, length in measured)
    return sum(value * length for value, length in measured) / total if total else None


# ---------------------------------------------------------------- what the rules say so far


_LEAST_PAUSE_S: Final = 10.0
"""Seconds between two analyses of a run that is watched."""
_PAUSE: Final = 20.0
"""The same as a multiple of the time that the last analysis took."""


_NICE: Final = 10
"""Priority of the analysis, as of `nice`: beside one busy thread it gets a tenth of a core."""


class RunningAnalysis:
    """The analysis of a run that is still being recorded, made anew from time to time beside the live view.

    :param analyse: reads and analyses what there is of the run.
    :param least: seconds between two analyses, at least.
    :param pause: the same as a multiple of the time that the last analysis took.
    """

    def __init__(
        self, analyse: Callable[[], Analysis], *, least: float = _LEAST_PAUSE_S, pause: float = _PAUSE
    ) -> None:
        self._analyse, self._least, self._pause = analyse, least, pause
        self._next: Future[Analysis] | None = None
        self._begin = self._due = 0.0
        self._last: Future[Analysis] | None = None

    def read(self, *, wait: bool = False) -> Analysis | None:
        """Return the last analysis; None: the first one is not ready.

        :param wait: wait for the one that is being made.
        :raises Exception: whatever the last analysis raised, until the next one is made: a ProfilerError where the run
            cannot be read, and any other error where the analysis is not prepared for what has been written so far.
        """
        now = time.monotonic()
        if self._next is None and now >= self._due:
            self._begin, self._next = now, self._start()
        if self._next is not None and (wait or self._next.done()):
            if wait:
                wait_for([self._next])
            self._last, self._next = self._next, None
            self._due = now + max(self._least, self._pause * (now - self._begin))
        return self._last.result() if self._last else None

    def _start(self) -> Future[Analysis]:
        """Analyse in a thread that does not keep the process from ending, and that leaves the cores to the program."""
        future = Future[Analysis]()

        def work() -> None:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
            try:
                future.set_result(self._analyse())
            except BaseException as error:  # noqa: BLE001 - `read` raises it
                future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return future


# ---------------------------------------------------------------- enough of a running program

_STEPS: Final = 20
"""Measured steps from which an answer may be sure. A choice."""
_FEW_STEPS, _LONG_S = 3, 10.0
"""Measured steps from which it may be sure of a program whose steps are long, and their seconds. A choice."""
_WIDEST: Final = 0.2
"""Width of the interval of the first finding's share, at most. A choice: the text shows wider ones as intervals."""


def leading(analysis: Analysis) -> Finding | None:
    """Return the finding that an answer begins with."""
    return next((each for each in analysis.findings if each.is_told), next(iter(analysis.findings), None))


def open_question(analysis: Analysis, before: Analysis | None) -> str:
    """Say what is still uncertain about why a program is slow; empty: nothing that more steps would tell.

    :param before: the analysis of the same run at an earlier time.
    """
    steps = round(analysis.value("steps") or 0.0)
    length = steps * (analysis.value("step_time") or 0.0)
    if steps < _FEW_STEPS or (steps < _STEPS and length < _LONG_S):
        return "the number of steps is small"
    first, last = leading(analysis), leading(before) if before else None
    if first is None:
        return "no cause stands out"
    if first.confidence is Confidence.LOW or (first.high or 0.0) - (first.low or 0.0) > _WIDEST:
        return "the share of the first cause is not certain"
    if last is None or (last.rule.name, last.sites[:1]) != (first.rule.name, first.sites[:1]):
        return "the first cause may change"
    return ""
