"""Makes the table of steps from the program's marks, else from the boundaries that step detection chose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.run.model import HOOKS, Run, StepDefinition, StepKind, Table
from profiler.run.step_detection import Numbers, StepEnds, count_optimizer_steps, detect_steps
from profiler.run.tables import NOT_READ, PAUSED, STEP_OF_ANOTHER_PROCESS, BoundaryKind

WARMUP_SHARE: Final = 0.1
MAX_WARMUP: Final = 5
"""The first tenth of detected steps, at most this many, is warm-up: compilers, caches and allocators settle in it."""


def add_steps(run: Run) -> Run:
    """Give `run` the steps that its program marked, or that are detected in it, and what they are.

    The process with the most steps comes first; of equal ones the one whose first step ended first.
    """
    if len(run.steps):  # the recorder begins a marked step behind a pause
        values = _assign_values(_merge_helper_values(run), run.steps)
        return replace(run, values=values, step=StepDefinition(StepKind.MARKED))
    definition, step_ends = detect_steps(interpolate_cpu(run.boundaries), run.names)
    if definition is None:
        return _exclude_pauses(_add_whole_run(run))
    parts = [_step_rows(ends, run.steps.dtype) for ends in step_ends]
    steps = np.concatenate([_number_steps(parts, pid) for pid in dict.fromkeys(int(part["pid"][0]) for part in parts)])
    return _exclude_pauses(_with_steps(run, steps, definition))


def _exclude_pauses(run: Run) -> Run:
    """Let a step begin behind a pause that the speed test made at its begin."""
    if PAUSED not in run.names or not len(run.steps):
        return run
    pauses = run.regions[run.regions["name"] == run.names.index(PAUSED)]
    steps = run.steps.copy()
    for pid in np.unique(pauses["pid"]).tolist():
        of_process = pauses[pauses["pid"] == pid]
        rows = np.flatnonzero(steps["pid"] == pid)
        rows = rows[np.argsort(steps["begin"][rows], kind="stable")]
        at = np.searchsorted(steps["begin"][rows], of_process["begin"], "right") - 1
        inside = (at >= 0) & (of_process["end"] <= steps["end"][rows[at]])
        steps["begin"][rows[at[inside]]] = of_process["end"][inside]
    return replace(run, steps=_frozen(steps))


def interpolate_cpu(boundaries: Table) -> Table:
    """Interpolate the CPU times that were not read: linearly between two readings, and beyond the last reading at the
    rate of the last two.

    Only readings of the same thread serve for `thread_cpu`, of the same process for the others.
    """
    if not (boundaries["thread_cpu"] == NOT_READ).any():
        return boundaries
    filled = boundaries.copy()
    times = filled["time"].astype(np.int64)
    for column, owner in (("thread_cpu", "tid"), ("process_cpu", "pid"), ("device_cpu", "pid")):
        for rows in (np.flatnonzero(filled[owner] == number) for number in np.unique(filled[owner])):
            read = rows[filled[column][rows] != NOT_READ]
            read = read[np.argsort(filled["time"][read], kind="stable")]
            filled[column][rows] = _interpolate(times[rows], times[read], filled[column][read].astype(np.int64))
    return filled


def _interpolate(at: Numbers, read_at: Numbers, read: Numbers) -> npt.NDArray[np.float64]:
    if not len(read):
        return np.zeros(len(at))
    values = np.interp(at, read_at, read)
    if len(read) > 1 and read_at[-1] > read_at[-2]:
        slope = max(0.0, float(read[-1] - read[-2]) / float(read_at[-1] - read_at[-2]))
        values += np.maximum(0, at - read_at[-1]) * slope
    return values


def _step_rows(step_ends: StepEnds, dtype: np.dtype[np.void]) -> Table:
    """Return one step between each boundary and the next."""
    count, ends = len(step_ends), step_ends.ends
    steps = np.zeros(count, dtype)
    steps["begin"], steps["end"] = ends["time"][:-1], ends["time"][1:]
    same_thread = ends["tid"][:-1] == ends["tid"][1:]
    for column in ("thread_cpu", "process_cpu", "device_cpu"):
        steps[column] = np.diff(ends[column])
    steps["thread_cpu"] *= same_thread  # the clocks of two threads have no difference
    for column in ("tid", "pid", "rank"):
        steps[column] = ends[column][1:]
    steps["warmup"] = (np.arange(count) < min(MAX_WARMUP, round(WARMUP_SHARE * count))) | step_ends.joins
    return steps


def _number_steps(parts: Iterable[Table], pid: int) -> Table:
    """Return the steps of all threads of a process, numbered in the order in which they ended."""
    steps = np.concatenate([part for part in parts if part["pid"][0] == pid])
    steps = steps[np.argsort(steps["end"], kind="stable")]
    steps["index"] = np.arange(len(steps))
    return steps


def _merge_helper_values(run: Run) -> Run:
    """Give all values of helper processes to the process with the most steps.

    A helper is a process without steps that called `marks.worked`: it works for the steps of another one. Values that
    hooks wrote in it at boundaries move too.
    """
    helpers = np.unique(run.values["pid"][run.values["step"] == STEP_OF_ANOTHER_PROCESS])
    helpers = helpers[~np.isin(helpers, run.steps["pid"])]
    if not len(helpers):
        return run
    _, first, counts = np.unique(run.steps["pid"], return_index=True, return_counts=True)
    leader = run.steps[first[np.argmax(counts)]]
    values = run.values.copy()
    moved = np.isin(values["pid"], helpers)
    values["pid"][moved], values["rank"][moved] = leader["pid"], leader["rank"]
    return replace(run, values=values)


def _assign_values(run: Run, steps: Table) -> Table:
    """Assign values that were written at no marked step to the step in (begin, end] of which they were written."""
    if not (run.values["step"] < 0).any():
        return run.values
    values = run.values.copy()
    for pid in np.unique(steps["pid"]).tolist():
        of_process = steps[steps["pid"] == pid]
        free = np.flatnonzero((values["pid"] == pid) & (values["step"] < 0))
        at = np.searchsorted(of_process["end"], values["time"][free], "left")
        inside = (at < len(of_process)) & (
            values["time"][free] > of_process["begin"][np.minimum(at, len(of_process) - 1)]
        )
        values["step"][free[inside]] = of_process["index"][at[inside]]
    return _frozen(values)


def _add_whole_run(run: Run) -> Run:
    """Return one step from the first stack sample to the last, where hooks were in but nothing ended a step."""
    hooks = run.info.collector(HOOKS)
    main = run.stacks[run.stacks["pid"] == run.stacks["tid"]]
    if hooks is None or hooks.state != "ok" or not len(main):
        return run
    pids, counts = np.unique(main["pid"], return_counts=True)
    pid = int(pids[np.argmax(counts)])
    samples = main[main["pid"] == pid]
    steps = np.zeros(1, run.steps.dtype)
    steps["begin"], steps["end"] = samples["begin"].min(), samples["end"].max()
    steps["pid"] = steps["tid"] = pid  # Linux numbers the main thread as the process
    boundaries = run.boundaries[run.boundaries["pid"] == pid]
    definition = StepDefinition(
        StepKind.WHOLE_RUN,
        optimizer_steps=count_optimizer_steps(boundaries, pid),
        loader_asked=bool((boundaries["kind"] == BoundaryKind.LOADER).any()),
    )
    return _with_steps(run, steps, definition)


def _with_steps(run: Run, steps: Table, definition: StepDefinition) -> Run:
    return replace(run, steps=_frozen(steps), values=_assign_values(run, steps), step=definition)


def _frozen(table: Table) -> Table:
    table.setflags(write=False)
    return table
