"""Counts what a run's stepping process and its loader's workers did in the measured steps, and where."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import times
from profiler.analyse.timing.counters import active_counters, call_counts, counter_sums, uncounted_on_cpu
from profiler.analyse.timing.counts import (
    BACKWARD,
    LASTING,
    CountedPeriod,
    Indices,
    lines_of_checkpoints,
    owners,
    periods,
    span_weights,
    startup,
)
from profiler.analyse.window import Window, measured_window, named_rows, process_rows, thread_rows
from profiler.check.counters.files import portable_path, root_folder
from profiler.check.counters.operators import (
    TableCounts,
    counter_rows,
    growing_lines,
    line_at,
    prefixed,
    step_counts,
    table_counts,
    whole,
)
from profiler.check.model import OTHER_THREAD, STAGES, Counted, CountedLine
from profiler.core.errors import Exit, ProfilerError
from profiler.core.metrics import CHECKPOINT, COUNTED_IN, EVALUATION, LOADER, NUMBER, ONCE
from profiler.report.notices import describe
from profiler.run.code_origin import working_folder
from profiler.run.model import Run, Table
from profiler.run.tables import (
    COUNTED,
    GRAPH_BROKEN,
    MIGHT_SYNC,
    NON_BLOCKING,
    RECOMPILED,
    TOKENIZED,
    WORKER_OF,
    CallKind,
    CountKind,
    StageKind,
    ValueKind,
)

_TIMES: Final = ("_ns", "_s", "_seconds")
"""Endings of counters that are times, which vary and are left out."""
_SECOND_SOURCE: Final = ("debug_syncs", "debug_syncs_seen")
"""Counters that verify others."""
_CALL_COUNTERS: Final = {
    CallKind.SYNC: "syncs",
    CallKind.H2D: "h2d",
    CallKind.D2H: "d2h",
    CallKind.ALLOC: "allocations",
    CallKind.LAUNCH: "launches",
}
GRAPH_BREAKS: Final = "graph_breaks"
_COMPILING: Final = (RECOMPILED, GRAPH_BREAKS)
_COPIES: Final = (CallKind.H2D, CallKind.D2H)
_STAGES: Final = (*STAGES, OTHER_THREAD)
_BATCH_REGION: Final = "dataset"
"""Region of a loader's worker around the making of a batch."""
_WORK: Final = ["site", "name", "count", "bytes"]
"""What must be equal in two batches in which the same was done."""
_USUAL: Final = 0.25
"""Share of the batches that do the same from which on they are usual, two at least. A choice: of two kinds by chance,
such as with and without mixing, the larger one has fewer of 20 batches once in 170 times."""
_NEVER: Final = np.iinfo(np.int64).max

Mask = npt.NDArray[np.bool_]
Amounts = dict[str, npt.NDArray[np.float64]]
Shown = Callable[[str], str]
"""Names a file as sites of the check have it."""


def counted(run: Run, spans: Sequence[tuple[int, int]] | None, *, folder: str = "") -> Counted:
    """Return the counters of one process.

    :param spans: begin and end (ns) of the measured blocks: the steps that end in them count. None: nobody controlled
        the program, and all measured steps count. Empty: it was controlled, and ended in its warm-up.
    :param folder: in which the program was started, where the run does not report it.
    :raises ProfilerError: there is no such step, or the run could not be recorded to its end.
    """
    if spans is not None and not spans:
        raise ProfilerError(
            f"nothing can be counted in {run.path}: the program ended before its warm-up was over; let it take more "
            f"steps, or give it fewer (`warmup`)"
        )
    if spans is None:
        steps: Table = run.steps[run.steps["warmup"] == 0]
    else:  # whatever the program calls a warm-up
        begins, ends = (np.array(side, np.int64) for side in zip(*sorted(spans), strict=True))
        end = run.steps["end"].astype(np.int64)
        index = np.searchsorted(begins, end, "left") - 1  # a step that ends as a span begins was before it
        steps = run.steps[(index >= 0) & (end <= ends[index])]
    window = _stepping_window(steps)
    if window is None:
        why = describe(measured_window(run).reason) or "no step ended within the measured stretches"
        raise ProfilerError(f"nothing can be counted in {run.path}: {why}", Exit.NOT_COMPARABLE)
    if lost := next((problem for problem in run.problems if problem.code == "process-stopped"), None):
        raise ProfilerError(f"what was counted in {run.path} is incomplete: {describe(lost)}", Exit.NOT_COMPARABLE)
    shown = partial(portable_path, folder=root_folder(folder or working_folder(run), run.info.argv))
    of_steps, apart, left_out = _divided(run, window)
    totals = _totals(run, window, left_out)
    workers, worker_lines = _workers(run, window, shown)
    calls = of_steps.calls
    lines, growing = _lines(run, calls, shown, stages=_stages(run, window, calls)), frozenset[tuple[str, int]]()
    if COUNTED in run.info.facts:
        compilations = _amounts(run, calls)
        totals |= {name: float(compilations[name].sum()) for name in _COMPILING if name in compilations}
        more = step_counts(run, window, of_steps.counts, shown)
        totals, lines = {**dict.fromkeys(_COMPILING, 0.0), **totals, **more.totals}, {**lines, **more.lines}
        growing = growing_lines(run, window, shown)
        usual, mean = _batch_counts(run, window, shown)
        totals, lines = totals | usual.totals, lines | usual.lines
        workers, worker_lines = workers | mean.totals, worker_lines | mean.lines
    for period, part in apart:
        found = _period_counts(run, window, period, part, shown)
        totals, lines = totals | found.totals, lines | found.lines
    return Counted(len(window), totals, workers, lines, worker_lines, uncounted_on_cpu(run, totals), growing)


@dataclass(frozen=True, slots=True)
class _Part:
    """What belongs to steps, or to a period, of the calls and the counts of a process."""

    calls: Table
    counts: Table
    call_spans: Indices
    """For each call the number of its span of the period."""
    count_spans: Indices


def _divided(run: Run, window: Window) -> tuple[_Part, list[tuple[CountedPeriod, _Part]], Table]:
    """Return what belongs to steps, what belongs to each period, and the calls within steps that belong to a period."""
    calls, counts = process_rows(run.calls, window), process_rows(run.counts, window)
    of = periods(run, window) if run.info.level != "light" else ()
    period, span = owners(calls["site"], times(calls["end"]), of)
    compiling = np.isin(calls["name"], [_name_number(run, name) for name in (RECOMPILED, GRAPH_BROKEN)])
    period[compiling] = -1
    lasting = np.isin(counts["kind"], LASTING)
    count_period, count_span = owners(np.where(lasting, -1, counts["site"]), times(counts["time"]), of)
    count_period[counts["kind"] == CountKind.GROWTH] = -1  # what an evaluation keeps is in use after its step too
    inside, count_inside = window.step_rows(calls["begin"]) >= 0, window.step_rows(counts["time"]) >= 0
    left_out: Table = calls[inside & (period >= 0)]
    if run.info.is_counted:  # compilations happen in the first steps
        inside |= compiling & (times(calls["begin"]) < window.end[-1])

    def part(chosen: Mask, spans: Indices, count_chosen: Mask, count_spans: Indices) -> _Part:
        return _Part(calls[chosen], counts[count_chosen], spans[chosen], count_spans[count_chosen])

    apart = []
    for number, each in enumerate(of):
        own, count_own = period == number, count_period == number
        if each.prefix == ONCE:
            own, count_own = own & inside, count_own & count_inside
        apart.append((each, part(own, span, count_own, count_span)))
    if COUNTED in run.info.facts:
        start = startup(run, window)
        spans, count_spans = start.span_of(-1, calls["end"]), start.span_of(-1, counts["time"])
        apart.append((start, part(spans >= 0, spans, count_spans >= 0, count_spans)))
    return part(inside & (period < 0), span, count_period < 0, count_span), apart, left_out


def _period_counts(run: Run, window: Window, period: CountedPeriod, part: _Part, shown: Shown) -> TableCounts:
    """Count a period. An amount per step is then that of one evaluation, or of one checkpoint."""
    names, steps = COUNTED_IN[period.prefix], len(window)
    weights = steps * span_weights(part.counts, part.count_spans)
    found = table_counts(run, part.counts, shown, names, weights, peak=steps)
    weights = steps * span_weights(part.calls, part.call_spans)
    amounts = {name: each * weights for name, each in _amounts(run, part.calls).items() if name in names}
    totals = {**found.totals, **{name: float(each.sum()) for name, each in amounts.items()}}
    totals = {name: amount for name, amount in totals.items() if amount}
    lines = {**found.lines, **_lines(run, part.calls, shown, amounts)}
    if period.prefix in (EVALUATION, CHECKPOINT):
        totals[NUMBER] = float((window.step_rows(period.spans.begin) >= 0).sum())
    if period.prefix == CHECKPOINT:
        made = lines_of_checkpoints(run, window)
        lines |= _lines(run, made, shown, {NUMBER: (window.step_rows(made["begin"]) >= 0).astype(np.float64)})
    return prefixed(TableCounts(totals, lines), period.prefix)


# ---------------------------------------------------------------- steps


def _stepping_window(steps: Table) -> Window | None:
    """Return the steps of the thread that took the most; of ranks that took equally many the lowest, so that it is
    always the same one."""
    steps = steps[steps["end"] > steps["begin"]]
    if not len(steps):
        return None
    threads, first, counts = np.unique(steps[["pid", "tid"]], return_index=True, return_counts=True)
    ranks = steps["rank"][first]
    pid, tid = threads[min(range(len(threads)), key=lambda i: (-counts[i], ranks[i], *threads[i].tolist()))].tolist()
    selected = steps[(steps["pid"] == pid) & (steps["tid"] == tid)]
    selected = selected[np.argsort(selected["begin"], kind="stable")]
    begin, end = (selected[side].astype(np.int64) for side in ("begin", "end"))
    return Window(pid, tid, selected, begin, end, excluded=len(steps) - len(selected))


# ---------------------------------------------------------------- amounts


def _totals(run: Run, window: Window, left_out: Table) -> dict[str, float]:
    """Return amounts in all steps; 0 for what was active and counted nothing.

    :param left_out: calls within steps that do not count there.
    """
    values = process_rows(run.values, window)
    counters = np.unique(values["name"][values["kind"] == ValueKind.COUNTER]).tolist()
    names = [run.names[number] for number in counters]
    names = [name for name in names if name not in _SECOND_SOURCE and not name.endswith(_TIMES)]
    recorded = {name: float(sums.sum()) for name, sums in counter_sums(run, window, names).items()}
    for name, amounts in _amounts(run, left_out).items():
        if name in recorded:
            recorded[name] = max(0.0, recorded[name] - float(amounts.sum()))
    return {**dict.fromkeys(active_counters(run), 0.0), **recorded}


def _amounts(run: Run, calls: Table) -> Amounts:
    """Return counter -> what each call adds to it; only counters to which some call adds."""
    kind, ones = calls["kind"], np.ones(len(calls))
    amounts: Amounts = {name: ones * (kind == call) for call, name in _CALL_COUNTERS.items()}
    amounts[MIGHT_SYNC] = call_counts(calls) * (kind == CallKind.MIGHT_SYNC)
    for copy in _COPIES:
        amounts[f"{_CALL_COUNTERS[copy]}_bytes"] = calls["bytes"] * (kind == copy).astype(np.float64)
    # a copy that the host waits for is a sync too; where all is counted nothing has a length, and the name tells it
    waits = calls["blocked"] > 0
    if run.info.is_counted:
        names = [number for number, name in enumerate(run.names) if not name.endswith(NON_BLOCKING)]
        waits = np.isin(calls["name"], names)
    amounts["syncs"] += np.isin(kind, _COPIES) & waits
    unclassified = kind == CallKind.OTHER
    amounts[RECOMPILED] = ones * (unclassified & (calls["name"] == _name_number(run, RECOMPILED)))
    amounts[GRAPH_BREAKS] = ones * (unclassified & (calls["name"] == _name_number(run, GRAPH_BROKEN)))
    tokenizing = unclassified & (calls["name"] == _name_number(run, TOKENIZED))
    amounts[TOKENIZED] = calls["bytes"] * tokenizing.astype(np.float64)
    return {name: amount for name, amount in amounts.items() if amount.any()}


def _lines(
    run: Run, calls: Table, shown: Shown, amounts: Amounts | None = None, *, stages: npt.NDArray[np.int64] | None = None
) -> dict[CountedLine, float]:
    """Return the lines with their amounts.

    :param amounts: of each call, by counter; None: those of `_amounts`.
    :param stages: of each call, its place in _STAGES.
    """
    lines: dict[CountedLine, float] = defaultdict(float)
    for counter, of_calls in (_amounts(run, calls) if amounts is None else amounts).items():
        rows = np.arange(len(calls)) if counter == NUMBER else np.flatnonzero(of_calls)
        staged = stages[rows] if stages is not None and counter == "syncs" else np.full(len(rows), -1)
        pairs = np.stack([calls["site"][rows], calls["name"][rows], staged], axis=1)
        keys, group = np.unique(pairs, axis=0, return_inverse=True)
        for (number, name, stage_number), amount in zip(
            keys.tolist(), np.bincount(group.ravel(), of_calls[rows]).tolist(), strict=True
        ):
            stage = "" if stage_number < 0 else _STAGES[stage_number]
            operation = "" if counter in (run.names[name], NUMBER) else run.names[name]
            lines[line_at(run, number, shown, counter, operation, stage=stage)] += amount
    return {line: whole(amount) for line, amount in lines.items()}


def _stages(run: Run, window: Window, calls: Table) -> npt.NDArray[np.int64] | None:
    """Return the place in _STAGES of each call; None: it is not known when forward passes began."""
    passes = named_rows(run, thread_rows(run.regions, window), BACKWARD)
    passes = passes[np.argsort(passes["begin"], kind="stable")]
    rows = thread_rows(run.stages, window)
    forwards = np.sort(times(rows["begin"][rows["kind"] == StageKind.FORWARD]))
    begins, ends = times(passes["begin"]), times(passes["end"])
    if not len(passes) or not len(forwards):
        return None
    first = np.searchsorted(forwards, np.concatenate(([0], ends[:-1])), "right")
    forwards = np.minimum(np.append(forwards, _NEVER)[first], begins)  # a graph may be used again
    at = times(calls["begin"])
    row = np.searchsorted(ends, at, "left")  # the pass that ends next
    begin, forward = (np.append(side, _NEVER)[row] for side in (begins, forwards))
    stages = np.where(at >= begin, 1, np.where(at >= forward, 0, 2))
    return times(np.where(calls["tid"] == window.tid, stages, _STAGES.index(OTHER_THREAD)))


# ---------------------------------------------------------------- loaders


def _workers(run: Run, window: Window, shown: Shown) -> tuple[dict[str, float], dict[CountedLine, float]]:
    """Return amounts of the loader's workers for as many batches as there are steps, and their lines."""
    batches = _worker_batches(run, window)
    if not len(batches):
        return {}, {}
    calls, scale = run.calls[_batch_of(run.calls, "begin", batches) >= 0], len(window) / len(batches)
    totals = dict.fromkeys((name for name in active_counters(run) if name != MIGHT_SYNC), 0.0)
    amounts = {name: scale * each for name, each in _amounts(run, calls).items()}
    totals |= {name: whole(float(each.sum())) for name, each in amounts.items()}
    return totals, _lines(run, calls, shown, amounts)


def _batch_counts(run: Run, window: Window, shown: Shown) -> tuple[TableCounts, TableCounts]:
    """Return what the loader's workers count for a usual batch, and the mean of all batches for what differs in all of
    them.

    Which batches are made during the steps is left to chance. So a usual batch does what many others do, and of several
    kinds, such as whole batches and half ones, it is the kind that does most. An amount per step is that of one batch.
    """
    batches = _worker_batches(run, window)
    usual, mean = TableCounts({}, {}), TableCounts({}, {})
    for counter in COUNTED_IN[LOADER] if len(batches) else ():
        rows = counter_rows(run.counts, counter)
        number = _batch_of(rows, "time", batches)
        order = np.lexsort((rows["name"], rows["site"], number))
        ends = np.searchsorted(number[order], np.arange(len(batches) + 1))
        works = [rows[order[begin:end]] for begin, end in pairwise(ends.tolist())]
        kinds = {tuple(work[_WORK].tolist()): work for work in works}
        numbers = Counter(tuple(work[_WORK].tolist()) for work in works)
        frequent = (kinds[kind] for kind in kinds if numbers[kind] >= max(2, _USUAL * len(works)))
        most = max(frequent, key=lambda work: int(work["bytes"].sum() + work["count"].sum()), default=None)
        own = rows[number >= 0] if most is None else most
        weights = np.full(len(own), len(window) / (len(batches) if most is None else 1))
        amounts = table_counts(run, own, shown, (counter,), weights, peak=0)
        into = mean if most is None else usual
        into.totals.update({name: whole(amount) for name, amount in amounts.totals.items()})
        into.lines.update(amounts.lines)
    return prefixed(usual, LOADER), mean


def _worker_batches(run: Run, window: Window) -> Table:
    """Return the batches that the loader's workers finished during the steps, or before them where there are none.

    How many batches a worker is ahead of the steps is left to chance, so whole batches are counted.
    """
    is_worker = run.calls["name"] == _name_number(run, WORKER_OF)
    pids = np.unique(run.calls["pid"][is_worker & (run.calls["bytes"] == window.pid)])
    batches = run.regions[(run.regions["name"] == _name_number(run, _BATCH_REGION)) & np.isin(run.regions["pid"], pids)]
    batches = batches[batches["depth"] == 0]
    during: Table = batches[(batches["end"] > window.begin[0]) & (batches["end"] <= window.end[-1])]
    return during if len(during) else batches


def _name_number(run: Run, name: str) -> int:
    """Return the number of a name in the run's tables; -2, which no row has, where it is not there."""
    return run.names.index(name) if name in run.names else -2


def _batch_of(rows: Table, column: str, batches: Table) -> Indices:
    """Find for each row the batch in which its thread was then, or its process where the thread is not known; -1:
    none. The batches of a thread do not overlap."""
    found = np.full(len(rows), -1)
    for pid, tid in np.unique(batches[["pid", "tid"]]).tolist():
        own = np.flatnonzero((batches["pid"] == pid) & (batches["tid"] == tid))
        own = own[np.argsort(batches["begin"][own], kind="stable")]
        is_same = rows["pid"] == pid
        at = np.flatnonzero(is_same & (rows["tid"] == tid) if "tid" in (rows.dtype.names or ()) else is_same)
        index = np.searchsorted(batches["begin"][own], rows[column][at], "right") - 1
        inside = (index >= 0) & (rows[column][at] <= batches["end"][own][index])
        found[at[inside]] = own[index[inside]]
    return times(found)
