"""A recorded run -> what its stepping process and its loader's workers counted in the measured steps, and where."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.counters import counter_sums
from profiler.analyse.window import Window, measured_window, of_process
from profiler.base.errors import Exit, ProfilerError
from profiler.gate.located import folder_of, shown, text_of
from profiler.gate.model import Counted
from profiler.run.model import Run, Site, Table
from profiler.run.tables import RECOMPILED, TOKENIZED, WORKER_OF, CallKind, ValueKind

HOOKED: Final = {
    "syncs": "tensors",
    "would_sync": "tensors",
    "h2d": "tensors",
    "d2h": "tensors",
    "h2d_bytes": "tensors",
    "d2h_bytes": "tensors",
    TOKENIZED: "",
    RECOMPILED: "dynamo",
}
"""Counters of the hooks, with the hook that must have come in: then one that was never counted is 0."""
NOT_AMOUNTS: Final = ("_ns", "_s", "_seconds")
"""Endings of counters that are times: these vary, and gate nothing."""
DOUBLES: Final = ("debug_syncs", "debug_syncs_seen")
"""Counters of a second source, which holds the first against itself."""

_ONE_A_CALL: Final = {
    CallKind.SYNC: "syncs",
    CallKind.WOULD_SYNC: "would_sync",
    CallKind.H2D: "h2d",
    CallKind.D2H: "d2h",
    CallKind.ALLOC: "allocations",
    CallKind.LAUNCH: "launches",
}
_COPIES: Final = (CallKind.H2D, CallKind.D2H)
_FETCH: Final = "dataset"
"""Region of a loader's worker around the making of a batch."""

Key = tuple[str, str, str, str]
Line = tuple[int, float, str]
"""Line, amount in all measured steps, text of the line."""
Text = Callable[[str, int], str]


def counted(run: Run, turns: Sequence[tuple[int, int]], *, folder: str = "", text: Text = text_of) -> Counted:
    """What one process counted.

    :param turns: begin and end (ns) of the stretches whose steps count, the ones that end in them; none: all measured
        steps of the run.
    :param folder: that the program was started in, where the run does not say.
    :param text: what stands in a line of a file.
    :raises ProfilerError: there is no such step, or the run could not be recorded to its end.
    """
    window = _stepping(_in_turns(run, turns) if turns else run.steps[run.steps["warmup"] == 0])
    if window is None:
        why = measured_window(run).reason or "no step ended within the turns"
        raise ProfilerError(f"nothing can be counted in {run.path}: {why}", Exit.NOT_COMPARABLE)
    if lost := next((one for one in run.problems if "could not write on" in one), None):
        raise ProfilerError(f"what was counted in {run.path} is not all there: {lost}", Exit.NOT_COMPARABLE)
    place = folder or folder_of(run)
    calls = of_process(run.calls, window)
    lines = _by_line(run, calls[window.step_of(calls["begin"]) >= 0], place, text)
    workers, of_workers, scale = _workers(run, window)
    return Counted(
        len(window),
        _totals(run, window),
        workers,
        {key: (sum(amount for _, amount, _ in own), _main(own)) for key, own in lines.items()},
        lines,
        _by_line(run, of_workers, place, text, scale),
    )


def _in_turns(run: Run, turns: Sequence[tuple[int, int]]) -> Table:
    """The steps that end within the turns, whatever the program calls a warm-up: that is outside of them."""
    begins, ends = (np.array(side, np.int64) for side in zip(*sorted(turns), strict=True))
    end = run.steps["end"].astype(np.int64)
    at = np.searchsorted(begins, end, "left") - 1  # a step that ends as a turn begins was before it
    steps: Table = run.steps[(at >= 0) & (end <= ends[at])]
    return steps


def _stepping(steps: Table) -> Window | None:
    """The steps of the thread that closed most of them; of ranks that closed as many the lowest, so that it is the same
    one each time."""
    steps = steps[steps["end"] > steps["begin"]]
    if not len(steps):
        return None
    threads, first, counts = np.unique(steps[["pid", "tid"]], return_index=True, return_counts=True)
    ranks = steps["rank"][first]
    pid, tid = threads[min(range(len(threads)), key=lambda i: (-counts[i], ranks[i], *threads[i].tolist()))].tolist()
    own = steps[(steps["pid"] == pid) & (steps["tid"] == tid)]
    own = own[np.argsort(own["begin"], kind="stable")]
    begin, end = (own[side].astype(np.int64) for side in ("begin", "end"))
    return Window(pid, tid, own, begin, end, others=len(steps) - len(own))


def _totals(run: Run, window: Window) -> dict[str, float]:
    """Amounts in all steps; 0 of what was watched and never counted."""
    values = of_process(run.values, window)
    named = np.unique(values["name"][values["kind"] == ValueKind.COUNTER]).tolist()
    names = [name for name in (run.names[number] for number in named) if _is_amount(name)]
    found = {name: float(sums.sum()) for name, sums in counter_sums(run, window, names).items()}
    return {**dict.fromkeys(_watched(run), 0.0), **found}


def _is_amount(name: str) -> bool:
    return name not in DOUBLES and not name.endswith(NOT_AMOUNTS)


def _watched(run: Run) -> Iterable[str]:
    """Counters that hooks would have counted, had there been anything to count."""
    if "package" not in run.info.facts:  # no hook says anything: none came in
        return ()
    failed = {status.name.removeprefix("hook ") for status in run.info.collectors if status.state == "failed"}
    return tuple(name for name, hook in HOOKED.items() if hook not in failed)


def _workers(run: Run, window: Window) -> tuple[dict[str, float], Table, float]:
    """Amounts of the loader's workers for as many batches as there are steps; their calls in the batches that were
    looked at, and how many times too few these are.

    A worker is ahead of the steps by some batches, by how many is left to chance. So what is counted is the mean of
    the batches that it finished meanwhile, each whole.
    """
    says = run.calls["name"] == _number(run, WORKER_OF)
    pids = np.unique(run.calls["pid"][says & (run.calls["bytes"] == window.pid)])
    fetches = run.regions[(run.regions["name"] == _number(run, _FETCH)) & np.isin(run.regions["pid"], pids)]
    fetches = fetches[fetches["depth"] == 0]
    meanwhile = fetches[(fetches["end"] > window.begin[0]) & (fetches["end"] <= window.end[-1])]
    fetches = meanwhile if len(meanwhile) else fetches
    if not len(fetches):
        return {}, run.calls[:0], 1.0
    calls = run.calls[_within(run.calls, fetches)]
    scale = len(window) / len(fetches)
    totals = dict.fromkeys(_watched(run), 0.0)
    for counter, amounts in _amounts(run, calls).items():
        totals[counter] = float(amounts.sum()) * scale
    return totals, calls, scale


def _number(run: Run, name: str) -> int:
    return run.names.index(name) if name in run.names else -2


def _within(calls: Table, regions: Table) -> npt.NDArray[np.bool_]:
    """Calls that began in a region of their own thread's; the regions of a thread do not overlap."""
    inside = np.zeros(len(calls), np.bool_)
    for pid, tid in np.unique(regions[["pid", "tid"]]).tolist():
        own = regions[(regions["pid"] == pid) & (regions["tid"] == tid)]
        own = own[np.argsort(own["begin"], kind="stable")]
        rows = np.flatnonzero((calls["pid"] == pid) & (calls["tid"] == tid))
        at = np.searchsorted(own["begin"], calls["begin"][rows], "right") - 1
        inside[rows] = (at >= 0) & (calls["begin"][rows] <= own["end"][at])
    return inside


def _amounts(run: Run, calls: Table) -> dict[str, npt.NDArray[np.float64]]:
    """Counter -> what each call adds to it; only of counters to which any does."""
    kind, ones = calls["kind"], np.ones(len(calls))
    found: dict[str, npt.NDArray[np.float64]] = {name: ones * (kind == one) for one, name in _ONE_A_CALL.items()}
    for copy in _COPIES:
        found[f"{_ONE_A_CALL[copy]}_bytes"] = calls["bytes"] * (kind == copy).astype(np.float64)
    # a copy that the host waits for is a sync too
    found["syncs"] += np.isin(kind, _COPIES) & (calls["blocked"] > 0)
    other = kind == CallKind.OTHER
    found[RECOMPILED] = ones * (other & (calls["name"] == _number(run, RECOMPILED)))
    found[TOKENIZED] = calls["bytes"] * (other & (calls["name"] == _number(run, TOKENIZED))).astype(np.float64)
    return {name: amounts for name, amounts in found.items() if amounts.any()}


def _by_line(run: Run, calls: Table, folder: str, text: Text, scale: float = 1.0) -> dict[Key, tuple[Line, ...]]:
    """What was counted at each line, by counter, file, function and operation."""
    sums: dict[Key, dict[tuple[int, str], float]] = defaultdict(lambda: defaultdict(float))
    for counter, amounts in _amounts(run, calls).items():
        rows = np.flatnonzero(amounts)
        places = np.stack([calls["site"][rows], calls["name"][rows]], axis=1)
        keys, group = np.unique(places, axis=0, return_inverse=True)
        for (site, name), amount in zip(keys.tolist(), np.bincount(group.ravel(), amounts[rows]).tolist(), strict=True):
            at = run.sites[site] if site >= 0 else Site("", 0, "")
            operation = run.names[name]
            key = (counter, shown(at.file, folder), at.function, "" if operation == counter else operation)
            sums[key][at.line, text(at.file, at.line) if at.file else ""] += amount * scale
    return {
        key: tuple((line, amount, words) for (line, words), amount in sorted(own.items())) for key, own in sums.items()
    }


def _main(lines: Sequence[Line]) -> int:
    """The line at which most is counted."""
    return max(lines, key=lambda one: (one[1], -one[0]))[0]
