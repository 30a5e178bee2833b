"""Selects the measured steps of the stepping thread, and the parts of a run's tables that belong to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Intervals, Times, times, union
from profiler.core.errors import Notice
from profiler.run.model import Run, Table
from profiler.run.tables import COLLECTIVE_METHODS, COLLECTIVES, CallKind

NS_PER_S = 1_000_000_000
LEVEL_LIGHT = Notice("level-light")
NO_QUEUE = Notice("no-queue")
MIN_RANK_STEPS: Final = 2
"""A rank closed at least one step per this many of the rank with most steps; else it only shares the machine."""
UNEQUAL_STEPS: Final = 1
"""Processes that wait for each other in every step differ by at most one step when they end."""
LOCKSTEP_WITHOUT_FACTS: Final = 0.25
"""Processes that state no rank are ranks if their steps end within this part of a step of each other: two programs that
run independently drift apart by more than that within some tens of steps."""
MIN_LOCKSTEPS: Final = 10
NEARLY_ALL: Final = 0.9


@dataclass(frozen=True, eq=False, slots=True)
class Window:
    """The measured steps: not warm-up, closed by the process and thread that closed most of them."""

    pid: int
    tid: int
    steps: Table
    """The steps in the order of their begin; they need not be contiguous."""
    begin: Times
    end: Times
    reason: Notice | None = None
    """Why no step was measured; None: some were."""
    excluded: int = 0
    """Measured steps that other threads or processes ended, which are no ranks; they are not in any figure."""
    rank: int = 0
    """The rank of the process; of processes that state none, their number."""

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def wall(self) -> Times:
        """Return the ns of each step."""
        return self.end - self.begin

    @property
    def wall_ns(self) -> int:
        """Return the ns of all steps: the measured time."""
        return int(self.wall.sum())

    @property
    def spans(self) -> Intervals:
        """Return the stretches of time that the steps cover."""
        return union(self.begin, self.end)

    def per_step(self, ns: float) -> float:
        """Return a sum of ns over the window as seconds per step."""
        return ns / len(self) / NS_PER_S

    def step_rows(self, moments: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the row of the step in which each moment lies, -1 for none."""
        at = times(moments)
        row = np.searchsorted(self.begin, at, "right") - 1
        inside = (row >= 0) & (at < self.end[row]) if len(self) else np.zeros(len(at), np.bool_)
        return times(np.where(inside, row, -1))


def measured_window(run: Run) -> Window:
    """Return the measured window of `run`, of its lowest rank. Without a measured step it is empty and has the
    reason."""
    return rank_windows(run)[0]


def rank_windows(run: Run) -> tuple[Window, ...]:
    """Return the measured window of each rank, by rank; a program of one process has one.

    Ranks are the processes that stated a rank. Without such facts they are the processes of equally many steps that end
    at the same times, because each waits for the others.
    """
    steps = run.steps
    if not len(steps):
        return (_empty(steps, Notice("no-step")),)
    measured = steps[(steps["warmup"] == 0) & (steps["end"] > steps["begin"])]
    if not len(measured):
        return (_empty(steps[:0], Notice("only-warm-up", {"steps": len(steps)})),)
    threads, first, counts = np.unique(measured[["pid", "tid", "rank"]], return_index=True, return_counts=True)
    # of threads with as many steps, the one that closed its first step first
    order = sorted(range(len(threads)), key=lambda i: (-counts[i], int(measured["end"][first[i]])))
    windows: dict[int, Window] = {}
    for number in order:
        pid, tid, rank = (int(threads[number][name]) for name in ("pid", "tid", "rank"))
        if rank not in windows and MIN_RANK_STEPS * counts[number] >= counts[order[0]]:
            windows[rank] = _thread_window(measured, pid, tid, rank)
    if len(windows) == 1:
        windows = _lockstep_windows(measured, [threads[number] for number in order], counts[order]) or windows
    excluded = len(measured) - sum(map(len, windows.values()))
    return tuple(replace(windows[rank], excluded=excluded) for rank in sorted(windows))


def has_ranks(run: Run) -> bool:
    """Return whether the program has several ranks, of which this run may hold only one."""
    size = run.info.facts.get("world_size")
    return (isinstance(size, int) and size > 1) or len(np.unique(run.steps["rank"])) > 1


def ranks_of_few_steps(run: Run, windows: Sequence[Window]) -> tuple[int, ...]:
    """Return the ranks whose steps are in no window, because they ended few."""
    kept = {window.rank for window in windows}
    return tuple(rank for rank in np.unique(run.steps["rank"]).tolist() if rank not in kept)


def job_size(run: Run, windows: Sequence[Window]) -> int:
    """Return the number of ranks of the job, of which this run may hold only some."""
    size = run.info.facts.get("world_size")
    return max(len(windows), size) if isinstance(size, int) else len(windows)


def _thread_window(measured: Table, pid: int, tid: int, rank: int) -> Window:
    rows = measured[(measured["pid"] == pid) & (measured["tid"] == tid)]
    rows = rows[np.argsort(rows["begin"], kind="stable")]
    return Window(pid, tid, rows, times(rows["begin"]), times(rows["end"]), rank=rank)


def _lockstep_windows(measured: Table, threads: Sequence[np.void], counts: Times) -> dict[int, Window]:
    """Return the windows of processes that step together though they state no rank, numbered by pid; empty for one
    process."""
    by_pid: dict[int, int] = {}
    for thread, count in zip(threads, counts.tolist(), strict=True):
        if abs(count - int(counts[0])) <= UNEQUAL_STEPS:
            by_pid.setdefault(int(thread["pid"]), int(thread["tid"]))
    windows = [_thread_window(measured, pid, tid, rank) for rank, (pid, tid) in enumerate(sorted(by_pid.items()))]
    if len(windows) < 2 or len(windows[0]) < MIN_LOCKSTEPS or not in_lockstep(windows, LOCKSTEP_WITHOUT_FACTS):
        return {}
    return {window.rank: window for window in windows}


def common_steps(windows: Sequence[Window]) -> npt.NDArray[np.int64]:
    """Return the row of each step that all ranks measured (steps x ranks)."""
    numbers = [times(window.steps["index"]) for window in windows]
    common = reduce(np.intersect1d, numbers)
    rows = [np.argsort(each, kind="stable")[np.searchsorted(np.sort(each), common)] for each in numbers]
    return np.stack(rows, axis=1)


def in_lockstep(windows: Sequence[Window], tolerance: float) -> bool:
    """Return whether the steps of all ranks end together: nearly all within `tolerance` of a step of each other."""
    rows = common_steps(windows)
    if not len(rows):
        return False
    ends = np.stack([window.end[rows[:, at]] for at, window in enumerate(windows)], axis=1)
    walls = np.stack([window.wall[rows[:, at]] for at, window in enumerate(windows)], axis=1)
    spread = ends.max(axis=1) - ends.min(axis=1)
    return bool(np.quantile(spread, NEARLY_ALL) <= tolerance * walls.mean())


def device_window(run: Run, window: Window) -> Window:
    """Return the steps whose device activities were recorded: all measured ones, or the few that torch's profiler
    traced.

    The traced steps are warm-up for every other question, since tracing slows them. A step that the trace saw only a
    part of is cut to that part.
    """
    begin, end = _traced(run)
    if not len(window) or begin >= end or not len(process_rows(run.activities, window)):
        return window
    steps = run.steps[(run.steps["pid"] == window.pid) & (run.steps["tid"] == window.tid)]
    steps = steps[(steps["begin"] < end) & (steps["end"] > begin)]
    if not len(steps):
        return window
    steps = steps[np.argsort(steps["begin"], kind="stable")]
    return Window(
        window.pid, window.tid, steps, np.maximum(times(steps["begin"]), begin), np.minimum(times(steps["end"]), end)
    )


def _traced(run: Run) -> tuple[int, int]:
    """Return the begin and end, ns, of the stretch that the run's own Kineto trace covers; equal where it has none."""
    trace = run.info.facts.get("trace")
    if not isinstance(trace, Mapping) or trace.get("state") != "recorded":
        return 0, 0
    begin, end = trace.get("begin"), trace.get("end")
    return (begin, end) if isinstance(begin, int) and isinstance(end, int) else (0, 0)


def _empty(steps: Table, reason: Notice) -> Window:
    nothing = np.zeros(0, np.int64)
    return Window(0, 0, steps[:0], nothing, nothing, reason)


def process_rows(table: Table, window: Window) -> Table:
    """Return the rows of the stepping process."""
    return select(table, table["pid"] == window.pid)


def thread_rows(table: Table, window: Window) -> Table:
    """Return the rows of the stepping thread."""
    return select(table, (table["pid"] == window.pid) & (table["tid"] == window.tid))


def select(table: Table, mask: npt.NDArray[np.bool_]) -> Table:
    """Return the rows of `table` where `mask` holds."""
    return table if mask.all() else table[mask]  # the usual case, without a copy of a large table


def named_rows(run: Run, table: Table, *names: str) -> Table:
    """Return the rows of `table` that bear one of these names."""
    return select(table, has_name(run, table, *names))


def has_name(run: Run, table: Table, *names: str) -> npt.NDArray[np.bool_]:
    """Return whether each row of `table` bears one of these names."""
    return np.isin(table["name"], [number for number, name in enumerate(run.names) if name in names])


def is_collective(run: Run, calls: Table) -> npt.NDArray[np.bool_]:
    """Return whether a rank may wait for other ranks in each call."""
    collective = has_name(run, calls, *COLLECTIVES, *COLLECTIVE_METHODS.values())
    return np.asarray((calls["kind"] == CallKind.OTHER) & collective, np.bool_)


def device_kind(run: Run) -> str:
    """Return the device that the program states: host, cuda, cpu; empty when it states none."""
    return str(run.info.facts.get("device", ""))
