"""Counts what a program does by line, and tells which counts belong to no step.

Evaluations, checkpoints and work that occurs once belong to none. How often these occur depends on the losses and on
the steps that happen to be counted. What one of them counts does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Intervals, times, union
from profiler.analyse.model.device import RunCounts, SiteCount
from profiler.analyse.window import Window, has_name, named_rows, process_rows, thread_rows
from profiler.core.metrics import CHECKPOINT, EVALUATION, ONCE, STARTUP
from profiler.run.code_origin import library_sites, project_folder, relative_site
from profiler.run.model import Run, Table
from profiler.run.tables import (
    BLOCK_OF_CHECKPOINT,
    CALLER_OF_CHECKPOINT,
    COUNTED,
    GRAPH_BROKEN,
    LINE_OF,
    RECOMPILED,
    TOKENIZED,
    CallKind,
    CountKind,
    StageKind,
)

_REGION: Final = "checkpoint"
BACKWARD: Final = "backward"
_IMPORTS: Final = ("import ", "from ")
"""Beginnings of lines that import."""
_MODULE: Final = "<module>"
_INNER: Final = ".<locals>.<"
"""What follows the name of a function in those of its comprehensions and lambdas."""
_NEVER: Final = np.iinfo(np.int64).max

LASTING: Final = (CountKind.GROWTH, CountKind.PEAK)
"""Counts of memory in use, whose lines may have run long before."""

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Function = tuple[str, str]
"""A file, and a function in it."""


@dataclass(frozen=True, slots=True)
class CountedPeriod:
    """What is counted apart from steps: what happens in stretches of time, and at lines."""

    prefix: str
    """Beginning of the names of its counters."""
    spans: Intervals
    """The stretches of time, by the clock of the process (ns)."""
    sites: frozenset[int] = frozenset()
    """The numbers of the lines."""

    def span_of(self, sites: npt.ArrayLike, moments: npt.ArrayLike) -> Indices:
        """Return the span to which each row belongs; -1: it does not belong to the period. A span holds what is behind
        its begin, up to its end. What lies outside belongs to the next span, where its line belongs to the period."""
        at = times(moments)
        span = np.searchsorted(self.spans.begin, at, "left") - 1
        span = np.where((span >= 0) & (at <= np.append(self.spans.end, 0)[span]), span, -1)
        following = np.clip(np.searchsorted(self.spans.end, at, "left"), 0, max(0, len(self.spans) - 1))
        return times(np.where((span < 0) & np.isin(sites, sorted(self.sites)), following, span))


def startup(run: Run, window: Window) -> CountedPeriod:
    """Return the time until the first step ended."""
    return CountedPeriod(STARTUP, union([-1], [_steps(run, window)["end"].min()]))


def periods(run: Run, window: Window) -> tuple[CountedPeriod, ...]:
    """Return what is counted apart from steps, until the last step ended. What lies in several periods belongs to the
    first one: a checkpoint that an evaluation makes is no part of the evaluation.

    Lines are known only in programs that are counted by line.
    """
    saved = named_rows(run, thread_rows(run.regions, window), _REGION)
    saved = saved[saved["begin"] < window.end[-1]]
    checkpoints = union(saved["begin"], saved["end"])
    evaluations = _evaluations(run, window)
    compiled = process_rows(run.stages, window)
    compiled = compiled[compiled["kind"] == StageKind.COMPILE]
    imports, savers = frozenset[int](), frozenset[int]()
    if COUNTED in run.info.facts:
        imports, savers = _imports(run, window), _savers(run, window, checkpoints)
    found = (
        CountedPeriod(ONCE, union(compiled["begin"], compiled["end"]), imports),
        CountedPeriod(CHECKPOINT, checkpoints, savers),
        CountedPeriod(EVALUATION, evaluations),
    )
    return tuple(each for each in found if len(each.spans) or each.sites)


def owners(sites: npt.ArrayLike, moments: Indices, of: Sequence[CountedPeriod]) -> tuple[Indices, Indices]:
    """Return the period to which each row belongs, and its span; -1: it belongs to none.

    :param sites: the number of the line of each row; -1: its line does not matter.
    """
    period, span = (np.full(len(moments), -1) for _ in range(2))
    for number, each in enumerate(of):
        found = each.span_of(sites, moments)
        new = (period < 0) & (found >= 0)
        period[new], span[new] = number, found[new]
    return times(period), times(span)


def span_weights(rows: Table, span: Indices) -> npt.NDArray[np.float64]:
    """Of each row of a period, 1 / in how many spans its line counts the same: so weighted sums are those of one
    evaluation or checkpoint, however many there were of each kind."""
    if not len(rows):
        return np.ones(0)
    _, group = np.unique(rows[["site", "name", "kind"]], return_inverse=True)
    pairs = np.unique(np.stack([group.ravel(), span], axis=1), axis=0)
    result: npt.NDArray[np.float64] = 1.0 / np.bincount(pairs[:, 0])[group.ravel()]
    return result


def lines_of_checkpoints(run: Run, window: Window) -> Table:
    """Return the calls that tell the lines which made checkpoints until the last step ended."""
    calls = named_rows(run, thread_rows(run.calls, window), LINE_OF[_REGION])
    rows: Table = calls[calls["begin"] < window.end[-1]]
    return rows


# ---------------------------------------------------------------- evaluations


def _evaluations(run: Run, window: Window) -> Intervals:
    """Return the time in which a module is in evaluation mode and nothing is trained, and other work without gradients
    that few steps do, where it is counted that a model ran."""
    rows = thread_rows(run.stages, window)
    rows = rows[np.argsort(rows["begin"], kind="stable")]
    begins, ends, opened = list[int](), list[int](), dict[int, int]()
    for kind, begin, module in zip(rows["kind"].tolist(), rows["begin"].tolist(), rows["object"].tolist(), strict=True):
        if kind == StageKind.EVAL_MODE:
            opened[module] = begin
        elif kind == StageKind.TRAIN_MODE and module in opened and begin <= window.end[-1]:
            begins.append(opened.pop(module))
            ends.append(begin)
    passes = named_rows(run, thread_rows(run.regions, window), BACKWARD)
    by_mode = _without(union(begins, ends), times(passes["begin"]))
    if COUNTED not in run.info.facts:  # what comes before the first step is the making of a model
        return _chosen(by_mode, by_mode.begin >= _steps(run, window)["end"].min())
    flops = process_rows(run.counts, window)
    computed = np.sort(times(flops["time"][flops["kind"] == CountKind.FLOPS]))
    # a library may load a model in evaluation mode: an evaluation computes something
    by_mode = _chosen(by_mode, _within(computed, by_mode))
    plain = rows[(rows["kind"] == StageKind.NO_GRAD) & (rows["end"] <= window.end[-1])]
    plain = plain[_within(computed, Intervals(times(plain["begin"]), times(plain["end"])))]
    plain = plain[CountedPeriod(EVALUATION, by_mode).span_of(-1, plain["end"]) < 0]
    counted = window.step_rows(plain["begin"])
    if not len(plain) or 2 * len(np.unique(counted[counted >= 0])) > len(window):  # it is a part of the training
        return by_mode
    step = np.searchsorted(times(_steps(run, window)["end"]), times(plain["begin"]), "right")
    _, first, group = np.unique(
        np.stack([step, times(plain["object"])]), axis=1, return_index=True, return_inverse=True
    )
    last = np.zeros(len(first), np.int64)
    np.maximum.at(last, group.ravel(), times(plain["end"]))
    return union([*by_mode.begin, *times(plain["begin"])[first]], [*by_mode.end, *last])


def _chosen(spans: Intervals, chosen: Mask) -> Intervals:
    return Intervals(spans.begin[chosen], spans.end[chosen])


def _within(moments: Indices, spans: Intervals) -> Mask:
    """Return which spans contain any of these moments, which ascend."""
    inside: Mask = np.searchsorted(moments, spans.end, "right") > np.searchsorted(moments, spans.begin, "right")
    return inside


def _without(spans: Intervals, moments: Indices) -> Intervals:
    """Return the spans that contain none of these moments."""
    return _chosen(spans, ~_within(np.sort(moments), spans))


# ---------------------------------------------------------------- lines that belong to no step


def _savers(run: Run, window: Window, checkpoints: Intervals) -> frozenset[int]:
    """Return the numbers of the lines that do nothing but make a checkpoint: a copy of the parameters to the CPU
    belongs to the checkpoint for which it is made.

    Of each function that was on the stack, from the innermost one to the first that may leave the checkpoint out, these
    are the lines that run only with it, if they count nothing in a step without a checkpoint, and run no model: neither
    themselves nor between one of them and the checkpoint of this step. Where the source is not known, they are all
    lines of the function.
    """
    steps = _steps(run, window)
    ends, begins = times(steps["end"]), np.append(checkpoints.begin, _NEVER)
    plain = _without(Intervals(times(steps["begin"]), ends), checkpoints.begin)
    if not len(plain):
        return frozenset()
    counts = process_rows(run.counts, window)
    models = counts[counts["kind"] == CountKind.FLOPS]
    computing, computed = times(models["site"]), np.sort(times(models["time"]))
    training = set(np.unique(computing[computing >= 0]).tolist())
    for sites, at in _sites(run, window):
        is_plain = CountedPeriod(CHECKPOINT, plain).span_of(-1, at) >= 0
        following = begins[np.searchsorted(begins, at, "left")]
        is_evaluating = _within(computed, Intervals(at, following)) & (
            np.searchsorted(ends, at, "left") == np.searchsorted(ends, following, "left")
        )
        training |= set(np.unique(sites[is_plain | is_evaluating]).tolist())
    found: set[int] = set()
    is_inner = True
    for number, lines in _callers(run, window):
        is_inner = (is_inner or number == 0) and not lines & training
        if is_inner:
            found |= lines
    return frozenset(found)


def _callers(run: Run, window: Window) -> Iterator[tuple[int, set[int]]]:
    """For each line on the stack of a checkpoint, from the innermost one outwards: its number there, and the numbers
    of the lines of its function that run with it."""
    functions: dict[Function, set[int]] = {}
    for number in range(len(run.sites)):
        functions.setdefault(_function(run, number), set()).add(number)
    callers = named_rows(run, thread_rows(run.calls, window), CALLER_OF_CHECKPOINT, BLOCK_OF_CHECKPOINT)
    callers = callers[np.argsort(callers["begin"], kind="stable")]
    is_block = [*has_name(run, callers, BLOCK_OF_CHECKPOINT).tolist(), False]
    for row in range(len(callers)):
        if is_block[row]:
            continue
        lines = functions[_function(run, callers["site"][row])]
        if is_block[row + 1]:
            first, length = run.sites[callers["site"][row + 1]].line, callers["bytes"][row + 1]
            lines = {number for number in lines if first <= run.sites[number].line < first + length}
        yield int(callers["bytes"][row]), lines


def _imports(run: Run, window: Window) -> frozenset[int]:
    """Return the numbers of lines that import, and of the code of modules that ran in one step only."""
    ends = times(_steps(run, window)["end"])
    steps: dict[str, set[int]] = {}
    for sites, at in _sites(run, window):
        for number, step in set(zip(sites.tolist(), np.searchsorted(ends, at, "left").tolist(), strict=True)):
            if run.sites[number].function == _MODULE:
                steps.setdefault(run.sites[number].file, set()).add(step)
    return frozenset(
        number
        for number, site in enumerate(run.sites)
        if site.source.lstrip().startswith(_IMPORTS)
        or (site.function == _MODULE and len(ends) > 1 and len(steps.get(site.file, ())) == 1)
    )


def _sites(run: Run, window: Window) -> Iterator[tuple[Indices, Indices]]:
    """Yield the lines of the counts and of the calls of the process, by number, with the times at which they ran."""
    for table, column, others in ((run.counts, "time", LASTING), (run.calls, "end", (CallKind.OTHER,))):
        rows = process_rows(table, window)
        rows = rows[(rows["site"] >= 0) & ~np.isin(rows["kind"], others)]
        yield times(rows["site"]), times(rows[column])


def _function(run: Run, number: int) -> Function:
    site = run.sites[number]
    return site.file, site.function.partition(_INNER)[0]


def _steps(run: Run, window: Window) -> Table:
    """Return all steps of the thread, also those that are not counted, in the order of time."""
    rows = thread_rows(run.steps, window)
    steps: Table = rows[np.argsort(rows["begin"], kind="stable")]
    return steps


# ---------------------------------------------------------------- counts by line

_CALLS: Final = {
    CallKind.SYNC: CountKind.SYNC,
    CallKind.H2D: CountKind.H2D,
    CallKind.D2H: CountKind.D2H,
    CallKind.D2D: CountKind.D2D,
    CallKind.LAUNCH: CountKind.LAUNCH,
}


_NAMED_CALLS: Final = {
    GRAPH_BROKEN: CountKind.GRAPH_BREAK,
    RECOMPILED: CountKind.RECOMPILATION,
    TOKENIZED: CountKind.TEXT,
}
"""Calls of kind OTHER."""


_COLUMNS: Final = [
    (name, np.int64) for name in ("kind", "name", "site", "frame", "pid", "step", "count", "bytes", "time")
]


_KEY: Final = ["kind", "name", "site"]


_NO_STEPS: Final = np.zeros(0, np.int64)


Steps = dict[int, npt.NDArray[np.int64]]
"""Process -> the ends of its steps (ns)."""


def run_counts(run: Run, label: str = "") -> RunCounts:
    """Return the counts of every line with what a report tells about the run.

    :param label: name of the side of a comparison.
    """
    return RunCounts(run.info, len(run.steps), site_counts(run), label)


def site_counts(run: Run) -> tuple[SiteCount, ...]:
    """Return the counts of every line, by kind and the most frequent first; its file is relative to the project's
    folder.

    Of several ranks, a step is one step of one rank. Events after the last step are not counted: a program that is
    stopped ends within a step. Processes without steps, such as a loader's workers, are not counted where others step.
    """
    ends: Steps = {int(pid): np.sort(run.steps["end"][run.steps["pid"] == pid]) for pid in np.unique(run.steps["pid"])}
    folder = project_folder(run)
    counts, libraries = [], library_sites(run, run.calls)
    lines = list(dict.fromkeys(filter(None, libraries)))
    number_of = {line: number for number, line in enumerate(lines)}
    frames_of_calls = np.array([-1 if line is None else number_of[line] for line in libraries], np.int64)
    for rows in _by_key(_events(run, ends, frames_of_calls)):
        kind, name, site = (int(rows[column][0]) for column in _KEY)
        before, before_bytes, each = 0, 0, Counter[tuple[int, int]]()
        by_process = {}
        for pid in np.unique(rows["pid"]):  # each process has steps of its own
            own = rows[rows["pid"] == pid]
            steps = len(ends.get(int(pid), _NO_STEPS))
            before += int(own["count"][own["step"] == 0].sum())
            before_bytes += int(own["bytes"][own["step"] == 0].sum())
            numbers, sizes = (_sums(own, column, steps) for column in ("count", "bytes"))
            each.update(zip(numbers.tolist(), sizes.tolist(), strict=True))
            by_process[int(pid)] = numbers
        where = relative_site(run.sites[site], folder) if site >= 0 else None
        count = SiteCount(CountKind(kind), run.names[name], where, before, before_bytes, each)
        usual = count.usual_number
        others = {
            (pid, int(step)): int(numbers[step]) - usual
            for pid, numbers in by_process.items()
            for step in np.flatnonzero(numbers != usual)
        }
        calls = Counter(lines[number] for number in rows["frame"].tolist() if number >= 0)
        frames = tuple(sorted(calls.items(), key=lambda each: (-each[1], str(each[0]))))
        counts.append(replace(count, others=others, frames=frames))
    return tuple(sorted(counts, key=lambda count: (count.kind, -count.mean, -count.before, count.name)))


def _events(run: Run, ends: Steps, frames: npt.NDArray[np.int64]) -> Table:
    """Return everything that was counted, with the number of its step in its process.

    :param frames: the number of the line of a library, of each call; -1: none.
    """
    kinds = np.full(len(run.calls), -1, np.int64)
    for call, kind in _CALLS.items():
        kinds[run.calls["kind"] == call] = kind
    for name, kind in _NAMED_CALLS.items():
        if name in run.names:
            kinds[(run.calls["kind"] == CallKind.OTHER) & (run.calls["name"] == run.names.index(name))] = kind
    is_counted = kinds >= 0
    calls, kinds = run.calls[is_counted], kinds[is_counted]
    rows = np.zeros(len(calls) + len(run.counts), _COLUMNS)
    first, later = rows[: len(calls)], rows[len(calls) :]
    for column in ("name", "site", "pid", "bytes"):
        first[column], later[column] = calls[column], run.counts[column]
    first["frame"], later["frame"] = frames[is_counted], -1
    first["time"], later["time"] = calls["begin"], run.counts["time"]
    first["kind"], later["kind"] = kinds, run.counts["kind"]
    first["count"], later["count"] = 1, run.counts["count"]
    is_text = first["kind"] == CountKind.TEXT
    first["count"][is_text], first["bytes"][is_text] = first["bytes"][is_text], 0
    for pid in np.unique(rows["pid"]):
        own = rows["pid"] == pid
        rows["step"][own] = np.searchsorted(ends.get(int(pid), _NO_STEPS), rows["time"][own], side="left")
    stepping = rows[np.isin(rows["pid"], list(ends))] if ends else rows
    return _without_lower_peaks(stepping)


def _without_lower_peaks(rows: Table) -> Table:
    """Of several boundaries in a step, the one before which most memory was in use decides."""
    is_peak = rows["kind"] == CountKind.PEAK
    moments, group = np.unique(rows[["pid", "step", "time"]][is_peak], return_inverse=True)
    totals = np.bincount(group.ravel(), rows["bytes"][is_peak], len(moments)).astype(np.int64)
    order = np.lexsort([-totals, moments["step"], moments["pid"]])
    _, first = np.unique(moments[["pid", "step"]][order], return_index=True)
    kept: Table = np.concatenate([rows[~is_peak], rows[is_peak][np.isin(group.ravel(), order[first])]])
    return kept


def _by_key(rows: Table) -> Iterator[Table]:
    """Yield the rows of each kind, name and line."""
    rows = rows[np.lexsort([rows[column] for column in reversed(_KEY)])]
    changed = np.zeros(max(0, len(rows) - 1), np.bool_)
    for column in _KEY:
        changed |= rows[column][1:] != rows[column][:-1]
    if len(rows):
        yield from np.split(rows, np.flatnonzero(changed) + 1)


def _sums(rows: Table, column: str, steps: int) -> npt.NDArray[np.int64]:
    """Return the sum of a column in each step after the first one."""
    sums = np.zeros(steps + 1, np.int64)
    np.add.at(sums, rows["step"], rows[column])
    return sums[1:steps]
