"""Diagnoses a running program: by what can be read from outside, and by the rules, from what was recorded of it so far.
Tells when that is enough to say why the program is slow."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.finding import Confidence, Finding
from profiler.core.errors import ProfilerError
from profiler.core.live import Snapshot, ThreadUse
from profiler.core.machine import estimate_throttling
from profiler.diagnose.device import BUSY
from profiler.diagnose.model import LiveDiagnosis, LiveLimit

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


def diagnose_live(snapshot: Snapshot) -> LiveDiagnosis:
    """Tell what limits a program over the last seconds, by what can be read from outside."""
    thread = snapshot.training
    if thread is None or thread.cpu is None:
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


# ---------------------------------------------------------------- what the rules say so far

_LEAST_PAUSE_S: Final = 10.0
"""Seconds between two analyses of a run that is watched."""
_PAUSE: Final = 20.0
"""The same as a multiple of the time that the last analysis took."""
_NICE: Final = 10
"""Priority of the analysis, as of `nice`: beside one busy thread it gets a tenth of a core."""
NOT_YET: Final = "the first analysis is not ready"


class RunningAnalysis:
    """Analyses a run that is still being recorded, from time to time, in a thread of its own.

    :param analyse: reads and analyses what there is of the run.
    :param least: seconds between two analyses, at least.
    :param pause: the same as a multiple of the time that the last analysis took.
    """

    def __init__(
        self, analyse: Callable[[], Analysis], *, least: float = _LEAST_PAUSE_S, pause: float = _PAUSE
    ) -> None:
        self._analyse, self._least, self._pause = analyse, least, pause
        self._thread: threading.Thread | None = None
        self._begin = self._due = 0.0
        self._made: Analysis | str = NOT_YET
        self._last: Analysis | str = NOT_YET

    def read(self, *, wait: bool = False) -> Analysis | str:
        """Return the last analysis, or why there is none.

        :param wait: wait for the one that is being made.
        """
        now = time.monotonic()
        if self._thread is None and now >= self._due:
            self._begin = now
            # a daemon: it does not keep the process from ending
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()
        if self._thread is not None:
            if wait:
                self._thread.join()
            if not self._thread.is_alive():
                self._thread, self._last = None, self._made
                self._due = now + max(self._least, self._pause * (now - self._begin))
        return self._last

    def _work(self) -> None:
        with suppress(OSError):  # leave the cores to the program
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        try:
            self._made = self._analyse()
        except ProfilerError as error:
            self._made = str(error)
        except Exception as error:  # noqa: BLE001 - the edge to a run that is still being written, and `read` reports it
            self._made = f"the analysis failed: {type(error).__name__}: {error}"


# ---------------------------------------------------------------- whether that is enough

_STEPS: Final = 20
"""Measured steps from which an answer may be sure. A choice."""
_FEW_STEPS, _LONG_S = 3, 10.0
"""Measured steps from which it may be sure of a program whose steps are long, and their seconds. A choice."""
_WIDEST: Final = 0.2
"""Width of the interval of the first finding's share, at most. A choice: the text shows wider ones as intervals."""


def open_question(analysis: Analysis, before: Analysis | None) -> str:
    """Say what is still uncertain about why a program is slow; empty: nothing that more steps would tell.

    :param before: the analysis of the same run at an earlier time.
    """
    steps = round(analysis.value("steps") or 0.0)
    length = steps * (analysis.value("step_time") or 0.0)
    if steps < _FEW_STEPS or (steps < _STEPS and length < _LONG_S):
        return "the number of steps is small"
    first, last = _leading(analysis), _leading(before) if before else None
    if first is None:
        return "no cause stands out"
    if first.confidence is Confidence.LOW or (first.high or 0.0) - (first.low or 0.0) > _WIDEST:
        return "the share of the first cause is not certain"
    if last is None or (last.rule.name, last.sites[:1]) != (first.rule.name, first.sites[:1]):
        return "the first cause may change"
    return ""


def _leading(analysis: Analysis) -> Finding | None:
    """Return the finding that an answer begins with."""
    return next((each for each in analysis.findings if each.is_told), next(iter(analysis.findings), None))
