"""Gives the time of the measured steps of a rank to cells: what took how long, whose and where.

Two sources describe the measured steps. Records and clocks tell how long each kind of time takes (the strip). Stack
samples tell how long each line takes. A cell needs both. So the samples keep the time that they give to each line, and
they get the kinds of the strip: a kind with too much time gives some, line by line, to kinds with too little.
`Ledger.moved` tells how much that was. What no sample shows becomes cells without a line. Calls with a
line were recorded exactly, so they replace the samples of their kinds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Floats, Intervals, covered_within, intersect, overlaps, union
from profiler.analyse.model.host import INTERRUPTIONS, Stage
from profiler.analyse.model.input import InputPart
from profiler.analyse.model.ledger import (
    GARBAGE_KIND,
    IMPORT_KIND,
    MAIN,
    NOT_RECORDED,
    RECORDER_KIND,
    Cell,
    Owner,
    Period,
    Recurrence,
)
from profiler.analyse.model.measures import CORELESS_CATEGORIES, HOST_CATEGORIES, LEAST_STEPS, WAIT_CATEGORIES
from profiler.analyse.sampling.frames import BETWEEN, CHECKPOINT
from profiler.analyse.sampling.lines import ShareError, most_frequent
from profiler.analyse.sampling.phases import sampled_phases
from profiler.analyse.sampling.shares import ClassifiedSamples, calls_by_line
from profiler.analyse.sampling.spikes import long_steps
from profiler.analyse.sampling.stacks import Stacks, has_hooked_steps
from profiler.analyse.sampling.stages import StageSpans
from profiler.analyse.timing.breakdown import Strip
from profiler.analyse.timing.host_timeline import CODE, RECORDING, REGION, HostTimeline
from profiler.analyse.timing.resources import recording_seconds
from profiler.analyse.window import NS_PER_S, Window, named_rows, thread_rows
from profiler.run.code_origin import LIBRARY, TORCH, USER, code_owner
from profiler.run.model import Site
from profiler.run.tables import GARBAGE_COLLECTION, LINE_OF

MOSTLY: Final = 0.8
"""Share of a cell's samples that must lie in long steps for it to occur in these only. A choice: the clock of the
sampler is accurate to milliseconds."""
IN_EACH: Final = 0.5
"""Share of the steps that must contain a stage for it to be a part of each step. A choice: half."""
ONLY_RARE: Final = 0.7
"""Share of a line's time that periodic cells must have for the line to be run by such steps only."""
MOST_RECORDING: Final = 0.5
"""Most of the work in a step that is taken to be the cost of recording, which is an estimate."""
_SAME_CALL_NS: Final = 1_000_000
"""Time between the record of the line of a checkpoint and its begin: some microseconds, and more where the thread loses
its core in between."""
_EXACT: Final = tuple(CODE[name] for name in ("sync", "copy", "launch"))
"""Kinds of calls toward a device, which are recorded with their lines."""
_WORK: Final = ("python", "framework", "compute")
_OWNERS: Final = {TORCH: Owner.TORCH, LIBRARY: Owner.LIBRARY}


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose code a stack runs."""

    owner: Owner
    package: str
    place: Site | None
    function: str
    """The innermost function below the place, as its module and name, of a library its own; empty: the place itself."""
    called_by: str = ""
    """The time is in a library: the innermost function of another library that calls it; empty: none does."""
    registered_at: Site | None = None
    """The time is in a hook: the user's line that registered it. None: it is the place itself, there is no hook, or the
    line is not known."""

    def without_functions(self) -> Origin:
        """Return the origin without what may differ between stacks of the same library at the same place."""
        return Origin(self.owner, self.package, self.place, "")


NOWHERE: Final = Origin(Owner.UNKNOWN, "", None, "")


def origin_of(stacks: Stacks, number: int) -> Origin:
    """Return the origin of a stack."""
    stack = stacks[number]
    place = stacks.relative(stack.site) if stack.owner == USER else None
    if stack.imports:
        return Origin(Owner.IMPORT, stack.imports, place, "")
    registered = stacks.registration(number)
    if registered is not None and place is not None and registered.place == place.place:
        registered = None
    if place is None:
        return Origin(Owner.LAUNCHER if stack.site.file else Owner.UNKNOWN, "", None, stack.calls)
    if stack.package:
        return Origin(Owner.LIBRARY, stack.package, place, stack.inside, stack.called_by, registered)
    if stack.calls_torch:
        return Origin(Owner.TORCH, "", place, stack.calls, "", registered)
    return Origin(Owner.PYTHON if stack.calls else Owner.USER, "", place, stack.calls, "", registered)


@dataclass(frozen=True, eq=False, slots=True)
class RankRecord:
    """What the analysis found out about the stepping thread of one rank."""

    window: Window
    host: HostTimeline | None
    strip: Strip | None
    samples: ClassifiedSamples | None
    stages: StageSpans
    inputs: Sequence[InputPart] = ()
    """The parts of its input, which were recorded with their lines."""


def named_origin(stacks: Stacks, origin: Origin, parts: Iterable[tuple[int, float]]) -> Origin:
    """Return the origin of these stacks with the function that takes most of their time, and with what leads to most of
    it."""
    functions, callers = defaultdict[str, float](float), defaultdict[str, float](float)
    lines = defaultdict[Site | None, float](float)
    for number, amount in parts:
        found = origin_of(stacks, number)
        functions[found.function] += amount
        callers[found.called_by] += amount
        lines[found.registered_at] += amount
    half = sum(functions.values()) / 2
    called_by = next((name for name, amount in callers.items() if amount > half), "")
    registered_at = next((line for line, amount in lines.items() if amount > half), None)
    return replace(origin, function=most_frequent(functions), called_by=called_by, registered_at=registered_at)


def kind_at(category: str, origin: Origin) -> str:
    """Return the kind of a category at a place."""
    is_wait = category in (*WAIT_CATEGORIES, RECORDER_KIND) and category != "ranks"  # imported code of that library
    return IMPORT_KIND if origin.owner is Owner.IMPORT and not is_wait else category


def make_cell(
    rank: int, period: Period, kind: str, origin: Origin, amounts: Sequence[float], *, when: Recurrence
) -> Cell:
    """Make a cell of a stepping thread.

    :param amounts: seconds with the ends of their interval and the stack samples that show them, or only exact seconds.
    """
    if kind in (*CORELESS_CATEGORIES, RECORDER_KIND):
        origin = Origin(Owner.RECORDER if kind == RECORDER_KIND else Owner.OTHERS, "", None, "")
    seconds, low, high, samples = amounts if len(amounts) > 1 else (*amounts, *amounts, *amounts, 0.0)
    return Cell(
        rank, MAIN, period, "", kind, origin.owner, origin.package, origin.place, origin.function, when, 0.0,
        seconds, low, high, samples, called_by=origin.called_by, registered_at=origin.registered_at,
    )  # fmt: skip


class StepCells:
    """Makes the cells of the measured steps of one rank."""

    def __init__(self, stacks: Stacks, record: RankRecord, period: Period) -> None:
        self._stacks, self._record, self._period, self._window = stacks, record, period, record.window
        self._usual = Recurrence.EACH if len(record.window) >= LEAST_STEPS else Recurrence.UNKNOWN
        self._usual = Recurrence.OUTSIDE if period is Period.UNSEEN else self._usual

    def cells(self) -> tuple[list[Cell], float]:
        """Return the cells, and the share of the time that changed its kind."""
        strip, samples = self._record.strip, self._record.samples
        if strip is None:
            seconds = self._window.wall_ns / NS_PER_S
            return [self._cell(NOT_RECORDED, NOWHERE, seconds)], 0.0
        totals = strip.ns.sum(axis=0).astype(np.float64)
        cells, explained = self._recorded(totals)
        rest, moved = totals - explained, 0.0
        if samples is not None:
            rows = samples.weight[:, None] * samples.line_shares
            rows[:, explained > 0] = 0.0
            rows, rest, moved = with_kinds(rows, rest)
            cells += self._sampled(samples, rows)
        cells += [
            self._cell(HOST_CATEGORIES[code], NOWHERE, rest[code] / NS_PER_S)
            for code in np.flatnonzero(rest >= 1).tolist()
        ]
        cells = self._without_recording(self._with_collections(cells))
        return list(self._with_input_lines(cells)), moved / self._window.wall_ns

    def _cell(self, kind: str, origin: Origin, *seconds: float) -> Cell:
        return make_cell(self._window.rank, self._period, kind, origin, seconds, when=self._usual)

    # ------------------------------------------------------------ records with a line

    def _recorded(self, totals: Floats) -> tuple[list[Cell], Floats]:
        """Return the cells of recorded calls with a line, of a trace of all that it recorded; and their ns by kind."""
        run, host, stacks = self._stacks.run, self._record.host, self._stacks

        def origin(site: Site | None) -> Origin:
            if site is None:
                return NOWHERE
            owner = _OWNERS.get(code_owner(site.file, stacks.folders), Owner.USER)
            return Origin(owner, "", stacks.relative(site), "")

        found = defaultdict[tuple[int, Site | None], float](float)
        if host is not None and run.is_trace:
            cut = overlaps(host.segments.begin, host.segments.end, self._window.spans)
            numbers = np.full(len(host.source), -1) if host.site is None else host.site
            keys = np.stack([host.category[cut.left], numbers[cut.left]], axis=1)
            pairs, row = np.unique(keys, axis=0, return_inverse=True)
            lengths = np.bincount(row.ravel(), cut.end - cut.begin, minlength=len(pairs))
            for (code, number), length in zip(pairs.tolist(), lengths.tolist(), strict=True):
                found[code, run.sites[number] if number >= 0 else None] += length
        elif host is not None:
            sites = {(site.file, site.line): site for site in run.sites}
            for line, ns in calls_by_line(run, host, self._window)[0].items():
                found |= {(code, sites[line]): float(ns[code]) for code in _EXACT if ns[code]}
            found |= self._checkpoints(host)
        sums = defaultdict[int, float](float)
        for (code, _), amount in found.items():
            sums[code] += amount
        explained = np.array([min(total, sums[code]) for code, total in enumerate(totals.tolist())])
        cells = [
            self._cell(HOST_CATEGORIES[code], origin(site), amount * explained[code] / sums[code] / NS_PER_S)
            for (code, site), amount in found.items()
        ]
        return cells, explained

    def _checkpoints(self, host: HostTimeline) -> dict[tuple[int, Site | None], float]:
        """Return the ns of recorded checkpoints by line; empty where the line of one is not known: older runs have
        none, nor have regions that the program marks itself."""
        run, code = self._stacks.run, CODE[CHECKPOINT]
        lines = named_rows(run, thread_rows(run.calls, self._window), LINE_OF[CHECKPOINT])
        rows = np.flatnonzero(host.category == code)
        cut = overlaps(host.segments.begin[rows], host.segments.end[rows], self._window.spans)
        if not len(lines) or not len(cut.left) or (host.source[rows] != REGION).any():
            return {}
        lines = lines[np.argsort(lines["begin"], kind="stable")]
        begin = host.regions["begin"][host.record[rows]].astype(np.int64)
        at = np.searchsorted(lines["begin"], begin, "right") - 1
        if (at < 0).any() or (begin - lines["begin"][at] > _SAME_CALL_NS).any():
            return {}
        ns: defaultdict[tuple[int, Site | None], float] = defaultdict(float)
        for number, length in zip(lines["site"][at][cut.left].tolist(), (cut.end - cut.begin).tolist(), strict=True):
            ns[code, run.sites[number] if number >= 0 else None] += length
        return ns

    # ------------------------------------------------------------ samples

    def _sampled(self, samples: ClassifiedSamples, rows: Floats) -> list[Cell]:
        """Return the cells of stack samples, whose rows have ns by kind."""
        ns = np.zeros((int(samples.stack.max()) + 1, len(HOST_CATEGORIES)))
        np.add.at(ns, samples.stack, rows)
        counts = np.bincount(samples.stack, samples.ns) * samples.n / samples.ns.sum()
        activity, error = self._activities(samples), ShareError(samples)
        collecting, long = self._in_collections(len(ns)), _LongSteps(self._stacks, self._window, self._record.stages)
        groups: defaultdict[tuple[str, str, Origin], list[tuple[int, float]]] = defaultdict(list)
        for number in np.flatnonzero(ns.any(axis=1)).tolist():
            origin = origin_of(self._stacks, number)
            for code in np.flatnonzero(ns[number] > 0).tolist():
                kind, amount = HOST_CATEGORIES[code], float(ns[number, code])
                if self._stacks[number].is_recorder or kind in CORELESS_CATEGORIES:
                    kind = RECORDER_KIND if self._stacks[number].is_recorder else kind
                    groups["", kind, NOWHERE].append((number, amount))
                    continue
                collected = amount * float(collecting[number]) if kind in _WORK else 0.0
                for part, name in ((amount - collected, kind_at(kind, origin)), (collected, GARBAGE_KIND)):
                    if part > 0:
                        groups[activity.get(number, ""), name, origin.without_functions()].append((number, part))
        cells, members = list[Cell](), list[dict[int, float]]()
        for (stage, kind, origin), parts in groups.items():
            numbers = [number for number, _ in parts]
            amount, whole = sum(part for _, part in parts), float(ns[numbers].sum())
            below, above = error.of_stacks(numbers)
            share = max(whole / self._window.wall_ns, 1e-12)
            seconds, count = amount / NS_PER_S, float(counts[numbers].sum()) * amount / whole
            high = min(seconds * (1 + above / share), self._window.wall_ns / NS_PER_S)
            low, named = seconds * max(0.0, 1 - below / share), named_origin(self._stacks, origin, parts)
            cell = replace(self._cell(kind, named, seconds, low, max(seconds, high), count), activity=stage)
            recurrence, every = self._recurrence(cell, parts, long)
            passed = defaultdict[Site, float](float)  # the user's lines above the innermost one, by time
            for number, part in parts:
                for site in {*self._stacks.user_frames(number)[:-1]}:
                    passed[site] += part
            callers = frozenset(self._stacks.relative(site).place for site, ns in passed.items() if ns > amount / 2)
            cells.append(replace(cell, recurrence=recurrence, every=every, callers=callers))
            members.append(dict(parts))
        return _with_entries(self._stacks, cells, members)

    def _activities(self, samples: ClassifiedSamples) -> dict[int, str]:
        """Return the phase or the stage that each stack is mostly in."""
        if self._period is Period.UNSEEN or not has_hooked_steps(self._stacks.run):
            return {}
        names = {n: "" if stack.phase == BETWEEN else stack.phase for n, stack in samples.stacks.items()}
        _, _, within = sampled_phases(self._stacks, samples, self._record.stages)
        for name, share in within.items():
            names |= dict.fromkeys(np.flatnonzero(share > 1 / 2).tolist(), str(name))
        return names

    def _recurrence(self, cell: Cell, parts: Iterable[tuple[int, float]], long: _LongSteps) -> tuple[Recurrence, float]:
        """Return whether a cell occurs in each step, and else the distance between two steps with it."""
        if self._usual is not Recurrence.EACH or cell.kind in CORELESS_CATEGORIES:
            return self._usual, 0.0
        if cell.activity in INTERRUPTIONS or cell.kind == CHECKPOINT:
            stage = Stage(cell.activity) if cell.activity in INTERRUPTIONS else Stage.CHECKPOINT
            spans = self._record.stages.spans.get(stage)
            begin, end = self._window.begin, self._window.end
            inside = 0 if spans is None else int((covered_within(spans, begin, end) > 0).sum())
            if 0 < inside < IN_EACH * len(self._window):
                return Recurrence.PERIODIC, float(round(len(self._window) / inside))
        if long.has(parts):
            return Recurrence.PERIODIC, float(long.every)
        return Recurrence.EACH, 0.0

    def _with_input_lines(self, cells: Iterable[Cell]) -> Iterator[Cell]:
        """Yield the cells, of which input that no sample shows is divided among the lines of its recorded parts."""
        own = [part for part in self._record.inputs if part.where == "main process" and part.context != "own thread"]
        whole = sum(part.seconds_per_step for part in own)
        for cell in cells:
            if cell.kind != "input" or cell.place is not None or not whole:
                yield cell
                continue
            for part in own:
                owner = Owner.UNKNOWN if part.site is None else Owner.USER
                placed = _scaled(cell, part.seconds_per_step / whole)
                yield replace(placed, owner=owner, place=part.site, function=part.name)

    # ------------------------------------------------------------ collecting garbage, and recording

    def _in_collections(self, count: int) -> Floats:
        """Of each stack the share of its samples that lies in a recorded collection."""
        spans, (samples, weight) = self._collections(), self._stacks.weighted_samples(self._window)
        if not len(spans):
            return np.zeros(count)
        row = np.searchsorted(spans.begin, samples["begin"], "right") - 1
        inside = (row >= 0) & (samples["begin"] < spans.end[np.maximum(row, 0)])
        return _shares(samples["stack"], weight, inside, count)

    def _collections(self) -> Intervals:
        rows = named_rows(self._stacks.run, thread_rows(self._stacks.run.regions, self._window), GARBAGE_COLLECTION)
        return intersect(union(rows["begin"], rows["end"]), self._window.spans)

    def _with_collections(self, cells: list[Cell]) -> list[Cell]:
        """Return the cells with the recorded time of collections; what samples show more or less is the
        interpreter's."""
        recorded = self._collections().measure() / NS_PER_S
        shown, python = (sum(cell.seconds for cell in cells if cell.kind == kind) for kind in (GARBAGE_KIND, "python"))
        wanted = min(recorded, shown + python)
        if not wanted and not shown:
            return cells
        if not shown:
            cells = [*cells, self._cell(GARBAGE_KIND, Origin(Owner.PYTHON, "", None, ""), wanted)]
        factors = {GARBAGE_KIND: wanted / shown if shown else 1.0}
        factors["python"] = (shown + python - wanted) / python if python else 1.0
        return [_scaled(cell, factors.get(cell.kind, 1.0)) for cell in cells]

    def _without_recording(self, cells: list[Cell]) -> list[Cell]:
        """Return the cells with the cost of recording as a cell of its own: what marks recorded of it, and an estimate
        for hooks. It is taken out of the work in a step."""
        run, seconds = self._stacks.run, 0.0
        if has_hooked_steps(run) and self._period is Period.STEPS:
            seconds = recording_seconds(run, self._window) * len(self._window)
        host = self._record.host
        if host is not None and RECORDING in run.names:
            number = run.names.index(RECORDING)
            rows = np.flatnonzero(host.source == REGION)
            rows = rows[host.regions["name"][host.record[rows]] == number]
            cut = overlaps(host.segments.begin[rows], host.segments.end[rows], self._window.spans)
            seconds += float((cut.end - cut.begin).sum()) / NS_PER_S
        work = sum(cell.seconds for cell in cells if cell.kind in _WORK)
        share = min(MOST_RECORDING, seconds / work) if work else 0.0
        if not share:
            return cells
        remaining = [_scaled(cell, 1 - share) if cell.kind in _WORK else cell for cell in cells]
        return [*remaining, self._cell(RECORDER_KIND, NOWHERE, share * work)]


def _scaled(cell: Cell, factor: float) -> Cell:
    if factor == 1.0:
        return cell
    seconds, low, high, samples = (factor * each for each in (cell.seconds, cell.low, cell.high, cell.samples))
    return replace(cell, seconds=seconds, low=low, high=high, samples=samples)


def with_kinds(rows: Floats, totals: Floats) -> tuple[Floats, Floats, float]:
    """Return the samples with the kinds of the strip.

    :param rows: ns of each row of samples by kind.
    :param totals: ns of each kind in the strip.
    :returns: the rows, each with the sum that it had, but scaled where all together exceed the strip; what no sample
        shows, by kind; and the ns that changed their kind.
    """
    sums = rows.sum(axis=0)
    if sums.sum() > totals.sum():
        scale = totals.sum() / sums.sum()
        rows, sums = rows * scale, sums * scale
    keep = np.divide(np.minimum(sums, totals), sums, out=np.ones_like(sums), where=sums > 0)
    freed, lacking = (rows * (1 - keep)).sum(axis=1), np.maximum(0.0, totals - sums)
    part = min(1.0, float(freed.sum() / lacking.sum())) if lacking.sum() else 0.0
    given = np.outer(freed, lacking / lacking.sum()) if lacking.sum() else np.zeros_like(rows)
    return rows * keep + given, lacking * (1 - part), float(freed.sum())


def _shares(stack: npt.NDArray[Any], weight: npt.NDArray[Any], inside: npt.NDArray[np.bool_], count: int) -> Floats:
    """Return the share of each stack's samples that lies inside, of `count` stacks."""
    total = np.bincount(stack, weight, count)
    return np.asarray(np.bincount(stack, weight * inside, count) / np.maximum(total, 1.0))


class _LongSteps:
    """The share of each stack's samples that lies in long steps."""

    def __init__(self, stacks: Stacks, window: Window, stages: StageSpans) -> None:
        found = long_steps(window, stages)
        self.every, self._inside = 0, np.zeros(0)
        if found is not None:
            long, _, self.every = found
            samples, weight = stacks.weighted_samples(window)
            inside, size = long[window.step_rows(samples["begin"])], len(stacks.run.stack_frames)
            self._inside = _shares(samples["stack"], weight, inside, size)

    def has(self, parts: Iterable[tuple[int, float]]) -> bool:
        """Return whether nearly all of these stacks' time lies in long steps."""
        if not len(self._inside):
            return False
        pairs = tuple(parts)
        inside = sum(amount * self._inside[number] for number, amount in pairs)
        return bool(inside >= MOSTLY * sum(amount for _, amount in pairs))


def _with_entries(stacks: Stacks, cells: list[Cell], members: Sequence[Mapping[int, float]]) -> list[Cell]:
    """Periodic cells with the outermost line that only such steps run."""
    rare, total = defaultdict[int, float](float), defaultdict[int, float](float)
    for cell, parts in zip(cells, members, strict=True):
        for number, amount in parts.items():
            total[number] += amount
            rare[number] += amount if cell.recurrence is Recurrence.PERIODIC else 0.0
    if not any(rare.values()):
        return cells
    below: defaultdict[Site, Floats] = defaultdict(lambda: np.zeros(2))
    for number, amount in total.items():
        for site in set(stacks.user_frames(number)):
            below[site] += rare[number], amount
    done = []
    for cell, parts in zip(cells, members, strict=True):
        entry = None
        if cell.recurrence is Recurrence.PERIODIC and cell.place is not None:
            frames = stacks.user_frames(max(parts, key=lambda number: parts[number]))
            entry = next((site for site in frames if below[site][0] >= ONLY_RARE * below[site][1]), None)
        done.append(replace(cell, entry=stacks.relative(entry) if entry else None))
    return done
