"""A recorded run -> what its stepping process and its loader's workers counted in the measured steps, and where."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.counters import counter_sums
from profiler.analyse.window import Window, measured_window, of_process
from profiler.check.loading import IN_LOADER, WOULD_SYNC, fetched, in_loader, number
from profiler.check.located import folder_of, place_of, shown, text_of
from profiler.check.model import Counted
from profiler.check.watched import watched, without_device
from profiler.core.errors import Exit, ProfilerError
from profiler.run.model import Run, Site, Table
from profiler.run.tables import RECOMPILED, TOKENIZED, CallKind, ValueKind

NOT_AMOUNTS: Final = ("_ns", "_s", "_seconds")
"""Endings of counters that are times: these vary, and gate nothing."""
DOUBLES: Final = ("debug_syncs", "debug_syncs_seen")
"""Counters of a second source, which holds the first against itself."""

_ONE_A_CALL: Final = {
    CallKind.SYNC: "syncs",
    CallKind.H2D: "h2d",
    CallKind.D2H: "d2h",
    CallKind.ALLOC: "allocations",
    CallKind.LAUNCH: "launches",
}
_COPIES: Final = (CallKind.H2D, CallKind.D2H)

Key = tuple[str, str, str, str]
Line = tuple[int, float, str]
"""Line, amount in all measured steps, text of the line."""
Text = Callable[[str, int], str]
Mask = npt.NDArray[np.bool_]


def counted(run: Run, turns: Sequence[tuple[int, int]] | None, *, folder: str = "", text: Text = text_of) -> Counted:
    """What one process counted.

    :param turns: begin and end (ns) of the stretches whose steps count, the ones that end in them. None: nobody drove
        the program, and all measured steps of the run count. Empty: it was driven, and ended before any was to count.
    :param folder: that the program was started in, where the run does not say.
    :param text: what stands in a line of a file.
    :raises ProfilerError: there is no such step, or the run could not be recorded to its end.
    """
    if turns is not None and not turns:
        raise ProfilerError(
            f"nothing can be counted in {run.path}: the program ended before its warm-up was over; let it take more "
            f"steps, or give it fewer with --warmup"
        )
    window = _stepping(run.steps[run.steps["warmup"] == 0] if turns is None else _in_turns(run, turns))
    if window is None:
        why = measured_window(run).reason or "no step ended within the turns"
        raise ProfilerError(f"nothing can be counted in {run.path}: {why}", Exit.NOT_COMPARABLE)
    if lost := next((one for one in run.problems if "could not write on" in one), None):
        raise ProfilerError(f"what was counted in {run.path} is not all there: {lost}", Exit.NOT_COMPARABLE)
    place = place_of(folder or folder_of(run), run.info.argv)
    calls = of_process(run.calls, window)
    calls = calls[window.step_of(calls["begin"]) >= 0]
    loading = in_loader(run, window, calls)
    lines = _by_line(run, calls, loading, place, text=text)
    totals = _totals(run, window, _amounts(run, calls, loading))
    workers, worker_lines = _workers(run, window, place, text)
    return Counted(
        len(window),
        totals,
        workers,
        {key: (sum(amount for _, amount, _ in own), _main(own)) for key, own in lines.items()},
        lines,
        worker_lines,
        without_device(run, totals),
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


def _totals(run: Run, window: Window, by_call: dict[str, npt.NDArray[np.float64]]) -> dict[str, float]:
    """Amounts in all steps; 0 of what was watched and never counted.

    :param by_call: of the calls in these steps, which tell a loader's from the others.
    """
    values = of_process(run.values, window)
    named = np.unique(values["name"][values["kind"] == ValueKind.COUNTER]).tolist()
    names = [name for name in (run.names[number] for number in named) if _is_amount(name)]
    found = {name: float(sums.sum()) for name, sums in counter_sums(run, window, names).items()}
    totals = {**dict.fromkeys(watched(run), 0.0), **found}
    if WOULD_SYNC in totals and IN_LOADER not in found and run.info.level != "light":  # light: no calls
        totals[IN_LOADER] = float(by_call[IN_LOADER].sum()) if IN_LOADER in by_call else 0.0
        totals[WOULD_SYNC] = max(totals[WOULD_SYNC] - totals[IN_LOADER], 0.0)
    return totals


def _is_amount(name: str) -> bool:
    return name not in DOUBLES and not name.endswith(NOT_AMOUNTS)


def _workers(run: Run, window: Window, place: str, text: Text) -> tuple[dict[str, float], dict[Key, tuple[Line, ...]]]:
    """Amounts of the loader's workers for as many batches as there are steps, and their lines."""
    made = fetched(run, window)
    if made is None:
        return {}, {}
    calls, scale = made
    everything = np.ones(len(calls), np.bool_)
    totals = dict.fromkeys((IN_LOADER if name == WOULD_SYNC else name for name in watched(run)), 0.0)
    for counter, amounts in _amounts(run, calls, everything).items():
        totals[counter] = float(amounts.sum()) * scale
    return totals, _by_line(run, calls, everything, place, text=text, scale=scale)


def _amounts(run: Run, calls: Table, loading: Mask) -> dict[str, npt.NDArray[np.float64]]:
    """Counter -> what each call adds to it; only of counters to which any does.

    :param loading: which of the calls a loader made.
    """
    kind, ones = calls["kind"], np.ones(len(calls))
    found: dict[str, npt.NDArray[np.float64]] = {name: ones * (kind == one) for one, name in _ONE_A_CALL.items()}
    found[WOULD_SYNC] = ones * ((kind == CallKind.WOULD_SYNC) & ~loading)
    found[IN_LOADER] = ones * ((kind == CallKind.WOULD_SYNC) & loading)
    for copy in _COPIES:
        found[f"{_ONE_A_CALL[copy]}_bytes"] = calls["bytes"] * (kind == copy).astype(np.float64)
    # a copy that the host waits for is a sync too
    found["syncs"] += np.isin(kind, _COPIES) & (calls["blocked"] > 0)
    other = kind == CallKind.OTHER
    found[RECOMPILED] = ones * (other & (calls["name"] == number(run, RECOMPILED)))
    found[TOKENIZED] = calls["bytes"] * (other & (calls["name"] == number(run, TOKENIZED))).astype(np.float64)
    return {name: amounts for name, amounts in found.items() if amounts.any()}


def _by_line(
    run: Run, calls: Table, loading: Mask, folder: str, *, text: Text, scale: float = 1.0
) -> dict[Key, tuple[Line, ...]]:
    """What was counted at each line, by counter, file, function and operation."""
    sums: dict[Key, dict[tuple[int, str], float]] = defaultdict(lambda: defaultdict(float))
    for counter, amounts in _amounts(run, calls, loading).items():
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
