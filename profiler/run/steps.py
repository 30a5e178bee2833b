"""Chooses what a step is, where the program has not marked any itself: among the moments that hooks saw.

Optimizer steps come first; of several optimizers `profiler.run.cycles` chooses. Threads that train side by side have
steps of their own. Without an optimizer, or where it stepped a few times beside many batches, a step is a batch: from
one question to a loader to the next. Without a loader the whole run counts as one step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.run.cycles import Numbers, phase_starts, round_ends, side_by_side
from profiler.run.model import HOOKS, MARKED, WHOLE_RUN, Run, Table
from profiler.run.tables import NOT_READ, OTHER_PROCESS, PAUSED, BoundaryKind

WARMUP_SHARE: Final = 0.1
WARMUP_MOST: Final = 5
"""Of the found steps the first tenth, at most this many, is warm-up: compilers, caches and allocators settle in it."""
ASIDE_SPAN: Final = 0.25
ASIDE_BATCHES: Final = 10
"""Optimizer steps over less than this share of the time, beside so many times as many batches, are not what it does."""


@dataclass(frozen=True, eq=False, slots=True)
class _Moments:
    """The steps of one thread, or of one process where its threads take turns."""

    rows: Table
    """All boundaries of that kind, by time."""
    chosen: Table
    """Those that end a step."""
    joins: npt.NDArray[np.bool_]
    """For each step whether it reaches from the end of one phase into the next: a pause, and no step to measure."""

    def __len__(self) -> int:
        return len(self.joins)


def with_steps(run: Run) -> Run:
    """`run` with the steps that it has or that are found in it, and what they are in words.

    The process with the most steps comes first; of equal ones the one whose first step ended first.
    """
    if len(run.steps):  # their recorder begins the next one behind a pause
        return replace(run, values=_assigned(_brought_together(run), run.steps), step_source=MARKED)
    return _without_pauses(_found(run))


def _without_pauses(run: Run) -> Run:
    """Steps begin behind a pause that the gate made at their begin: it is no part of them."""
    if PAUSED not in run.names or not len(run.steps):
        return run
    pauses = run.regions[run.regions["name"] == run.names.index(PAUSED)]
    steps = run.steps.copy()
    for pid in np.unique(pauses["pid"]).tolist():
        own = pauses[pauses["pid"] == pid]
        rows = np.flatnonzero(steps["pid"] == pid)
        rows = rows[np.argsort(steps["begin"][rows], kind="stable")]
        at = np.searchsorted(steps["begin"][rows], own["begin"], "right") - 1
        held = (at >= 0) & (own["end"] <= steps["end"][rows[at]])
        steps["begin"][rows[at[held]]] = own["end"][held]
    return replace(run, steps=_frozen(steps))


def _found(run: Run) -> Run:
    boundaries = with_cpu(run.boundaries)
    optimizer, loader = (_of_kind(run, boundaries, kind) for kind in (BoundaryKind.OPTIMIZER, BoundaryKind.LOADER))
    if optimizer and not (loader and _aside(optimizer[0], loader[0])):
        return _built(run, optimizer, _optimizer_words(run, optimizer[0]))
    if loader:
        return _built(
            run, loader, f"batches of {_used(run, loader[0])}: {_stepped(run, int(loader[0].rows['pid'][0]))}"
        )
    return _whole(run)


def _of_kind(run: Run, boundaries: Table, kind: BoundaryKind) -> list[_Moments]:
    rows = boundaries[boundaries["kind"] == kind]
    rows = rows[np.argsort(rows["time"], kind="stable")]
    found = []
    for pid in np.unique(rows["pid"]).tolist():
        found += [_chosen(own, kind) for own in side_by_side(rows[rows["pid"] == pid], run.names)]
    return sorted((one for one in found if len(one)), key=lambda one: (-len(one), int(one.chosen["time"][1])))


def with_cpu(boundaries: Table) -> Table:
    """`boundaries` with CPU times where none were read: as between the readings before and behind, evenly; behind the
    last reading as between the last two.

    Those of a thread are its own; those of the process and its device any thread's.
    """
    if not (boundaries["thread_cpu"] == NOT_READ).any():
        return boundaries
    filled = boundaries.copy()
    for column, of in (("thread_cpu", "tid"), ("process_cpu", "pid"), ("device_cpu", "pid")):
        for own in (np.flatnonzero(filled[of] == number) for number in np.unique(filled[of])):
            read = own[filled[column][own] != NOT_READ]
            read = read[np.argsort(filled["time"][read], kind="stable")]
            moments = filled["time"].astype(np.int64)
            at, read_at, cpu = moments[own], moments[read], filled[column][read].astype(np.int64)
            filled[column][own] = _between(at, read_at, cpu)
    return filled


def _between(at: Numbers, read_at: Numbers, read: Numbers) -> npt.NDArray[np.float64]:
    if not len(read):
        return np.zeros(len(at))
    found = np.interp(at, read_at, read)
    if len(read) > 1 and read_at[-1] > read_at[-2]:
        slope = max(0.0, float(read[-1] - read[-2]) / float(read_at[-1] - read_at[-2]))
        found += np.maximum(0, at - read_at[-1]) * slope
    return found


def _chosen(rows: Table, kind: BoundaryKind) -> _Moments:
    names = rows["name"].astype(np.int64)
    starts = phase_starts(names).tolist()
    picked, last = [], []
    for start, stop in zip(starts, [*starts[1:], len(names)], strict=True):
        ends = start + round_ends(names[start:stop])
        if kind == BoundaryKind.LOADER:
            # between the end of an epoch and its next batch the last batch is still being worked on
            ends = ends[(rows["flag"][ends] == 0) | (ends == ends[-1])]
        picked.append(ends)
        last += [False] * (len(ends) - 1) + [True]
    return _Moments(rows, rows[np.concatenate(picked)], np.array(last[:-1], np.bool_))


def _aside(optimizer: _Moments, loader: _Moments) -> bool:
    """Whether the optimizer's steps are a small matter beside the loader's batches."""
    begin, end = int(optimizer.chosen["time"][0]), int(optimizer.chosen["time"][-1])
    begin -= (end - begin) // len(optimizer)  # its first step began about so long before it ended
    asked = loader.chosen["time"]
    whole = max(end, int(asked[-1])) - min(begin, int(asked[0]))
    outside = int(((asked < begin) | (asked > end)).sum())
    return end - begin < ASIDE_SPAN * whole and ASIDE_BATCHES * len(optimizer) < outside


def _built(run: Run, found: list[_Moments], words: str) -> Run:
    parts = [_steps_of(one, run.steps.dtype) for one in found]
    steps = np.concatenate([_numbered(parts, pid) for pid in dict.fromkeys(int(part["pid"][0]) for part in parts)])
    return replace(run, steps=_frozen(steps), values=_assigned(run, steps), step_source=words)


def _steps_of(found: _Moments, dtype: np.dtype[np.void]) -> Table:
    """One step between each boundary and the next."""
    count, chosen = len(found), found.chosen
    steps = np.zeros(count, dtype)
    steps["begin"], steps["end"] = chosen["time"][:-1], chosen["time"][1:]
    one_thread = chosen["tid"][:-1] == chosen["tid"][1:]
    for column in ("thread_cpu", "process_cpu", "device_cpu"):
        steps[column] = np.diff(chosen[column])
    steps["thread_cpu"] *= one_thread  # another thread's clock says nothing of the time between
    for column in ("tid", "pid", "rank"):
        steps[column] = chosen[column][1:]
    steps["warmup"] = (np.arange(count) < min(WARMUP_MOST, round(WARMUP_SHARE * count))) | found.joins
    return steps


def _numbered(parts: Iterable[Table], pid: int) -> Table:
    """The steps of all threads of a process in the order in which they ended, as a program that marks has them."""
    own = np.concatenate([part for part in parts if part["pid"][0] == pid])
    own = own[np.argsort(own["end"], kind="stable")]
    own["index"] = np.arange(len(own))
    return own


def _brought_together(run: Run) -> Run:
    """What processes counted for the steps of another one is that one's: the process with the most steps.

    Of such a process all values are, those too that hooks wrote at moments at which a step might have ended there.
    """
    helpers = np.unique(run.values["pid"][run.values["step"] == OTHER_PROCESS])
    helpers = helpers[~np.isin(helpers, run.steps["pid"])]
    if not len(helpers):
        return run
    _, first, counts = np.unique(run.steps["pid"], return_index=True, return_counts=True)
    leader = run.steps[first[np.argmax(counts)]]
    values = run.values.copy()
    moved = np.isin(values["pid"], helpers)
    values["pid"][moved], values["rank"][moved] = leader["pid"], leader["rank"]
    return replace(run, values=values)


def _assigned(run: Run, steps: Table) -> Table:
    """Values that were written at no marked step get the step that they lie in: after its begin, to its end."""
    if not (run.values["step"] < 0).any():
        return run.values
    values = run.values.copy()
    for pid in np.unique(steps["pid"]).tolist():
        own = steps[steps["pid"] == pid]
        free = np.flatnonzero((values["pid"] == pid) & (values["step"] < 0))
        at = np.searchsorted(own["end"], values["time"][free], "left")
        inside = (at < len(own)) & (values["time"][free] > own["begin"][np.minimum(at, len(own) - 1)])
        values["step"][free[inside]] = own["index"][at[inside]]
    return _frozen(values)


def _optimizer_words(run: Run, found: _Moments) -> str:
    text = f"steps of {_used(run, found)}"
    skipped = int((found.chosen["flag"][1:] == 1).sum())
    if skipped:
        text += f", of which GradScaler skipped {skipped:,}"
    within = set(found.rows["name"].tolist()) - set(found.chosen["name"].tolist())
    others = sorted(run.names[number] for number in within)
    if others:
        more = f" and {len(others) - 2} more" if len(others) > 2 else ""
        text += f"; within them {', '.join(others[:2])}{more} stepped too"
    return text


def _used(run: Run, found: _Moments) -> str:
    """What ends the steps: one in each phase, or several of it in turns."""
    phases = np.split(found.chosen["name"], np.flatnonzero(found.joins) + 1)
    texts = list(dict.fromkeys(_in_turns([run.names[name] for name in dict.fromkeys(one.tolist())]) for one in phases))
    return " then ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")


def _in_turns(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    shown = names if len(names) < 4 else [*names[:3], f"{len(names) - 3} more"]
    return f"{', '.join(shown[:-1])} and {shown[-1]} in turns"


def _stepped(run: Run, pid: int) -> str:
    """How often an optimizer stepped in that process, too seldom to make its steps."""
    own = run.boundaries[(run.boundaries["pid"] == pid) & (run.boundaries["kind"] == BoundaryKind.OPTIMIZER)]
    most = int(np.unique(own["name"], return_counts=True)[1].max(initial=0))
    return {0: "no optimizer stepped", 1: "an optimizer stepped only once"}.get(
        most, f"an optimizer stepped only {most:,} times"
    )


def _whole(run: Run) -> Run:
    """Where hooks were in and stacks were taken, but nothing ended a step: one, from the first sample to the last."""
    hooks = run.info.collector(HOOKS)
    hooked = hooks is not None and hooks.state == "ok"
    main = run.stacks[run.stacks["pid"] == run.stacks["tid"]]
    if not hooked or not len(main):
        return run
    pids, counts = np.unique(main["pid"], return_counts=True)
    pid = int(pids[np.argmax(counts)])
    own = main[main["pid"] == pid]
    steps = np.zeros(1, run.steps.dtype)
    steps["begin"], steps["end"] = own["begin"].min(), own["end"].max()
    steps["pid"] = steps["tid"] = pid  # Linux numbers the main thread as the process
    return replace(run, steps=_frozen(steps), values=_assigned(run, steps), step_source=_whole_words(run, pid))


def _whole_words(run: Run, pid: int) -> str:
    own = run.boundaries[run.boundaries["pid"] == pid]
    asked = "a loader was asked only once" if (own["kind"] == BoundaryKind.LOADER).any() else "no loader was asked"
    return f"{WHOLE_RUN}: {_stepped(run, pid)}, {asked}, and the program marks no steps (profiler.step())"


def _frozen(table: Table) -> Table:
    table.setflags(write=False)
    return table
