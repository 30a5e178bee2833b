"""Makes the ledger of a run: gives all time of each stepping thread, and of the device, to cells.

Outside of the measured steps nothing but samples tells what ran.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Intervals, complement, covered_within, intersect, subtract, union
from profiler.analyse.ledger_steps import (
    NOWHERE,
    Origin,
    RankRecord,
    StepCells,
    kind_at,
    make_cell,
    named_origin,
    origin_of,
)
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.device import IdleBlame
from profiler.analyse.model.ledger import (
    DEVICE,
    MAIN,
    RECORDER_KIND,
    Cell,
    Ledger,
    Owner,
    Period,
    Quartiles,
    Recurrence,
)
from profiler.analyse.model.measures import LEAST_STEPS, UNATTRIBUTED
from profiler.analyse.sampling.phases import exact_phases
from profiler.analyse.sampling.stacks import FIXED, Stacks, sample_ns
from profiler.analyse.sampling.stages import WELL_SAMPLED
from profiler.analyse.statistics import share_interval
from profiler.analyse.timing.scheduler import step_delays
from profiler.analyse.window import NS_PER_S, Window, thread_rows
from profiler.run.model import Run
from profiler.run.tables import ONE_OFF

LEAST_TO_GROW: Final = 60
"""Steps from which their thirds tell whether steps grow. A choice: twenty steps in each."""


def make_ledger(
    stacks: Stacks, ranks: Sequence[RankRecord], analysed: Window, on_device: Window, analysis: Analysis
) -> Ledger:
    """Return the ledger of a run.

    :param analysed: the measured window of the rank that stands for the run.
    :param on_device: its steps whose device activities were recorded.
    :param analysis: what is known of the device.
    """
    run = stacks.run
    is_unseen = run.step is not None and run.step.is_whole_run
    cells, wall = list[Cell](), dict[tuple[int, str, Period], float]()
    moved, active = dict[int, float](), dict[int, float]()
    for record in ranks:
        window = record.window
        if not len(window):  # in a run without a step, the main thread with most samples
            main = run.stacks[run.stacks["pid"] == run.stacks["tid"]]
            pids, counts = np.unique(main["pid"], return_counts=True)
            pid = int(pids[np.argmax(counts)]) if len(pids) else 0
            window = replace(window, pid=pid, tid=pid)
        else:
            period = Period.UNSEEN if is_unseen else Period.STEPS
            found, share = StepCells(stacks, record, period).cells()
            cells += found
            wall[window.rank, MAIN, period] = window.wall_ns / NS_PER_S
            moved[window.rank] = share
            clock = stacks.thread_time(window)
            if clock is not None:
                active[window.rank] = (clock.on_core + clock.runnable) / NS_PER_S
        for period, spans in _other_periods(run, window):
            cells += _sampled_cells(stacks, window, period, spans)
            wall[window.rank, MAIN, period] = spans.measure() / NS_PER_S
    measured = Period.UNSEEN if is_unseen else Period.STEPS
    of_device = [replace(cell, period=measured) for cell in _device_cells(analysis, len(on_device), analysed.rank)]
    if of_device:
        wall[analysed.rank, DEVICE, measured] = on_device.wall_ns / NS_PER_S
    cells = sorted((*cells, *of_device), key=lambda cell: -cell.seconds)
    steps = {MAIN: len(analysed), DEVICE: len(on_device)}
    delays = step_delays(run, analysed) if len(analysed) >= LEAST_TO_GROW and not is_unseen else None
    usual = () if delays is None else _quartiles(analysed.wall - delays)
    record_of_run = next((each for each in ranks if each.window is analysed), None)
    phases = _usual_phases(run, record_of_run) if usual and record_of_run else {}
    return Ledger(tuple(cells), wall, moved, active, steps, usual=usual, usual_phases=phases, rank=analysed.rank)


def _quartiles(ns: npt.NDArray[Any]) -> Quartiles:
    """Return the quartiles, so that neither rare work nor a short disturbance counts."""
    thirds = np.array_split(ns, 3)
    low, middle, high = (np.array([np.percentile(third, at) for third in thirds]) / NS_PER_S for at in (25, 50, 75))
    return tuple(zip(low.tolist(), middle.tolist(), high.tolist(), strict=True))


def _usual_phases(run: Run, record: RankRecord) -> dict[str, Quartiles]:
    """Return `Ledger.usual_phases`."""
    window = record.window
    if record.host is None:
        return {}
    spans = exact_phases(run, window, record.host, record.stages)
    ns = {name: covered_within(each, window.begin, window.end) for name, each in spans.items() if len(each)}
    ns[""] = window.wall - np.sum([*ns.values(), np.zeros(len(window))], axis=0)
    return {name: _quartiles(each) for name, each in ns.items()}


def _other_periods(run: Run, window: Window) -> Iterator[tuple[Period, Intervals]]:
    """Yield the time of a thread outside of its measured steps."""
    steps, samples = thread_rows(run.steps, window), thread_rows(run.stacks, window)
    ends = [int(rows["end"].max()) for rows in (steps, samples) if len(rows)]
    begin, end = run.info.begin, max((run.info.end or 0, *ends))
    if run.is_trace or not begin:
        begin = min([int(rows["begin"].min()) for rows in (steps, samples) if len(rows)], default=end)
    nothing = union([], [])
    if not len(window):
        parts = {Period.UNSEEN: union([begin], [end])}
    else:
        first, last = int(window.begin.min()), int(window.end.max())
        apart = steps[steps["warmup"] == ONE_OFF]
        one_off = union(apart["begin"], apart["end"]) if len(apart) else nothing
        between = intersect(complement(window.spans, first, last), union([first], [last]))
        parts = {
            Period.BEFORE: subtract(union([begin], [first]), one_off),
            Period.ONE_OFF: one_off,
            Period.BETWEEN: subtract(between, one_off),
            Period.AFTER: subtract(union([last], [end]), one_off),
        }
    yield from ((period, spans) for period, spans in parts.items() if len(spans))


def _sampled_cells(stacks: Stacks, window: Window, period: Period, spans: Intervals) -> Iterator[Cell]:
    """Yield the cells of a period of which only samples tell what ran."""
    samples = thread_rows(stacks.run.stacks, window)
    ns = sample_ns(samples, spans)
    samples, ns = samples[ns > 0], ns[ns > 0]
    total, sampled, n = float(spans.measure()), float(ns.sum()), stacks.sample_count(samples, ns)
    scale = total / sampled if sampled >= WELL_SAMPLED * total else 1.0
    groups: defaultdict[tuple[str, Origin], list[tuple[int, float]]] = defaultdict(list)
    is_blocked = (samples["active"] == 0).astype(np.int64)
    keys, row = np.unique(2 * samples["stack"].astype(np.int64) + is_blocked, return_inverse=True)
    for key, amount in zip(keys.tolist(), np.bincount(row, ns, len(keys)).tolist(), strict=True):
        origin = origin_of(stacks, key // 2)
        stack, kind = stacks[key // 2], "waiting"
        if stacks.in_recorder[key // 2] or stack.is_recorder:
            kind = RECORDER_KIND
        elif named := stack.category or FIXED.get(stack.stratum, ""):
            kind = named
        elif not key % 2:
            kind = "compute" if stack.in_torch else "python"
        kind = kind_at(kind, origin)
        groups[kind, origin.without_functions()].append((key // 2, amount))
    when = Recurrence.ONCE if period is Period.ONE_OFF else Recurrence.OUTSIDE
    for (kind, origin), parts in groups.items():
        amount = sum(part for _, part in parts)
        share, whole = amount / sampled, sampled * scale / NS_PER_S
        low, high = share_interval(share, n)
        seconds = share * whole, low * whole, high * whole, n * share
        yield make_cell(window.rank, period, kind, named_origin(stacks, origin, parts), seconds, when=when)
    rest = (total - sampled * scale) / NS_PER_S
    if rest > 0:
        yield make_cell(window.rank, period, UNATTRIBUTED, NOWHERE, [rest], when=when)


def _device_cells(analysis: Analysis, steps: int, rank: int) -> Iterator[Cell]:
    """Yield what the device did, and its idle time by what the host did meanwhile."""
    if not analysis.idle:  # it has no queue, or its activities were not recorded
        return
    when = Recurrence.EACH if steps >= LEAST_STEPS else Recurrence.UNKNOWN

    def cell(kind: str, per_step: float, row: IdleBlame | None = None) -> Cell:
        seconds = per_step * steps
        activity = row.state.name.lower().replace("_", " ") if row else ""
        how_often = Recurrence.ONCE if row and row.is_once else when
        return Cell(
            rank, DEVICE, Period.STEPS, activity, kind, Owner.USER if row and row.site else Owner.UNKNOWN, "",
            row.site if row else None, row.subject if row else "", how_often, 0.0, seconds, seconds, seconds, 0.0,
        )  # fmt: skip

    for name, measure in analysis.device_breakdown.items():
        if name != "idle" and measure.value:
            yield cell(f"device {name}", measure.value)
    for row in analysis.idle:
        yield cell(f"idle: {row.category}", row.seconds_per_step, row)
