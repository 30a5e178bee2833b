"""Chooses what a step is, where the program has not marked any itself: among the moments that hooks saw.

Optimizer steps come first. Of several optimizers (a GAN, one for each layer) the step ends with the one that steps
most seldom, as long as it is not a rare extra (`SELDOM`); of equally frequent ones with the last of each round. Phases
that one optimizer after the other trains are each taken by themselves. Without an optimizer a step is a batch: from one
question to a loader to the next. Without a loader the whole run counts as one step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.run.model import Run, Table
from profiler.run.tables import BoundaryKind

SELDOM: Final = 10
"""An optimizer that steps less than once in so many steps of the most frequent one does not end the step."""
WARMUP_SHARE: Final = 0.1
WARMUP_MOST: Final = 5
"""Of the found steps the first tenth, at most this many, is warm-up: compilers, caches and allocators settle in it."""
MARKED: Final = "steps as the program marks them"
WHOLE_RUN: Final = (
    "the whole run as one step: no optimizer stepped, no loader was asked, and the program marks no steps "
    "(profiler.step())"
)

_Rows = npt.NDArray[np.int64]


def with_steps(run: Run) -> Run:
    """`run` with the steps that it has or that are found in it, and what they are in words."""
    if len(run.steps):
        return replace(run, step_source=MARKED)
    kinds = run.boundaries["kind"]
    for kind in (BoundaryKind.OPTIMIZER, BoundaryKind.LOADER):
        rows = run.boundaries[kinds == kind]
        found = [(chosen, own) for own in _of_processes(rows) if len(chosen := _chosen(own, kind)) > 1]
        if found:
            return _built(run, found, kind)
    return _whole(run)


def _of_processes(rows: Table) -> list[Table]:
    ordered = rows[np.argsort(rows["time"], kind="stable")]
    return [ordered[ordered["pid"] == pid] for pid in np.unique(rows["pid"]).tolist()]


def _chosen(rows: Table, kind: BoundaryKind) -> Table:
    """The boundaries of one process, by time."""
    picked = rows[_cycle_ends(rows["name"].astype(np.int64), rows["time"].astype(np.int64))]
    if kind == BoundaryKind.LOADER and len(picked):
        # between the end of an epoch and its next batch the last batch is still being worked on
        keep = picked["flag"] == 0
        keep[-1] = True
        picked = picked[keep]
    return picked


def _cycle_ends(names: _Rows, when: _Rows) -> _Rows:
    """Indices of the rows (ascending in time) that end a step."""
    kinds, first, counts = np.unique(names, return_index=True, return_counts=True)
    if len(kinds) < 2:
        return np.arange(len(names), dtype=np.int64)
    last = len(names) - 1 - np.unique(names[::-1], return_index=True)[1]
    span = when[last] - when[first]
    leading = np.flatnonzero((span >= 0.5 * (when[-1] - when[0])) & (counts * SELDOM >= counts.max()))
    if not len(leading):
        leading = np.array([int(np.argmax(span))])
    fewest = counts[leading].min()
    equal = leading[counts[leading] <= fewest + 1]  # one of a round may have been cut off
    leader = equal[np.argmax(first[equal])]
    own = np.flatnonzero(names == kinds[leader])
    a_round = 2 * max(1, round(float(np.median(np.diff(own)))) if len(own) > 1 else 1)
    parts = [own]
    if own[0] > a_round:
        parts.insert(0, _cycle_ends(names[: own[0]], when[: own[0]]))
    if len(names) - 1 - own[-1] > a_round:
        start = int(own[-1]) + 1
        parts.append(start + _cycle_ends(names[start:], when[start:]))
    return np.concatenate(parts)


def _built(run: Run, found: list[tuple[Table, Table]], kind: BoundaryKind) -> Run:
    steps = np.concatenate([_steps_of(chosen, run.steps.dtype) for chosen, _ in found])
    found = sorted(found, key=lambda pair: -len(pair[0]))  # the process with the most steps speaks for all
    return replace(run, steps=_frozen(steps), values=_assigned(run, steps), step_source=_words(run, *found[0], kind))


def _steps_of(chosen: Table, dtype: np.dtype[np.void]) -> Table:
    """One step between each boundary and the next."""
    count = len(chosen) - 1
    steps = np.zeros(count, dtype)
    steps["index"] = np.arange(count)
    steps["begin"], steps["end"] = chosen["time"][:-1], chosen["time"][1:]
    one_thread = chosen["tid"][:-1] == chosen["tid"][1:]
    for column in ("thread_cpu", "process_cpu", "device_cpu"):
        steps[column] = np.diff(chosen[column])
    steps["thread_cpu"] *= one_thread  # another thread's clock says nothing of the time between
    for column in ("tid", "pid", "rank"):
        steps[column] = chosen[column][1:]
    steps["warmup"] = np.arange(count) < min(WARMUP_MOST, round(WARMUP_SHARE * count))
    return steps


def _assigned(run: Run, steps: Table) -> Table:
    """Values that were written at no marked step get the found step that they lie in: after its begin, to its end."""
    values = run.values.copy()
    for pid in np.unique(steps["pid"]).tolist():
        own = steps[steps["pid"] == pid]
        free = np.flatnonzero((values["pid"] == pid) & (values["step"] == -1))
        at = np.searchsorted(own["end"], values["time"][free], "left")
        inside = (at < len(own)) & (values["time"][free] > own["begin"][np.minimum(at, len(own) - 1)])
        values["step"][free[inside]] = own["index"][at[inside]]
    return _frozen(values)


def _words(run: Run, chosen: Table, rows: Table, kind: BoundaryKind) -> str:
    used = [run.names[number] for number in dict.fromkeys(chosen["name"].tolist())]
    what = " then ".join(used[:3]) + (f" and {len(used) - 3} more" if len(used) > 3 else "")
    if kind == BoundaryKind.LOADER:
        return f"batches of {what}: no optimizer stepped"
    text = f"steps of {what}"
    skipped = int((chosen["flag"][1:] == 1).sum())
    if skipped:
        text += f", of which GradScaler skipped {skipped:,}"
    others = sorted({run.names[number] for number in np.unique(rows["name"]).tolist()} - set(used))
    if others:
        more = f" and {len(others) - 2} more" if len(others) > 2 else ""
        text += f"; within them {', '.join(others[:2])}{more} stepped too"
    return text


def _whole(run: Run) -> Run:
    """Where hooks were in and stacks were taken, but nothing ended a step: one, from the first sample to the last."""
    hooked = any(status.name == "inside" and status.state == "ok" for status in run.info.collectors)
    main = run.stacks[run.stacks["pid"] == run.stacks["tid"]]
    if not hooked or not len(main):
        return run
    pids, counts = np.unique(main["pid"], return_counts=True)
    pid = int(pids[np.argmax(counts)])
    own = main[main["pid"] == pid]
    steps = np.zeros(1, run.steps.dtype)
    steps["begin"], steps["end"] = own["begin"].min(), own["end"].max()
    steps["pid"] = steps["tid"] = pid  # Linux numbers the main thread as the process
    return replace(run, steps=_frozen(steps), values=_assigned(run, steps), step_source=WHOLE_RUN)


def _frozen(table: Table) -> Table:
    table.setflags(write=False)
    return table
