"""Makes the ledger of a run: gives all time of each stepping thread, and of the device, to cells.

Two sources describe the measured steps. Records and clocks tell how long each kind of time takes (the strip). Stack
samples tell how long each line takes. A cell needs both. So the samples keep the time that they give to each line, and
they get the kinds of the strip: a kind with too much time gives some, line by line, to kinds with too little.
`Ledger.moved` tells how much that was. What no sample shows becomes cells without a line. Calls with a
line were recorded exactly, so they replace the samples of their kinds.

Outside of the measured steps nothing but samples tells what ran.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import (
    Floats,
    Intervals,
    complement,
    covered_within,
    intersect,
    overlaps,
    subtract,
    union,
)
from profiler.analyse.ledger.cells import (
    DEVICE,
    GARBAGE_KIND,
    IMPORT_KIND,
    MAIN,
    NOT_RECORDED,
    RECORDER_KIND,
    Cell,
    Ledger,
    Owner,
    Period,
    Quartiles,
    Recurrence,
)
from profiler.analyse.ledger.origins import Origin, origin_of
from profiler.analyse.model import (
    CORELESS_CATEGORIES,
    HOST_CATEGORIES,
    INTERRUPTIONS,
    LEAST_STEPS,
    UNATTRIBUTED,
    WAIT_CATEGORIES,
    IdleBlame,
    InputPart,
    Measure,
    Stage,
)
from profiler.analyse.sampling.frames import BETWEEN, CHECKPOINT
from profiler.analyse.sampling.lines import ShareError, most_frequent
from profiler.analyse.sampling.phases import exact_phases, sampled_phases
from profiler.analyse.sampling.shares import ClassifiedSamples, calls_by_line
from profiler.analyse.sampling.spikes import long_steps
from profiler.analyse.sampling.stacks import FIXED, Stacks, has_hooked_steps, sample_ns
from profiler.analyse.sampling.stages import WELL_SAMPLED, StageSpans
from profiler.analyse.statistics import share_interval
from profiler.analyse.timing.breakdown import Strip
from profiler.analyse.timing.host_timeline import CODE, RECORDING, REGION, HostTimeline
from profiler.analyse.timing.resources import recording_seconds
from profiler.analyse.timing.scheduler import step_delays
from profiler.analyse.window import NS_PER_S, Window, named_rows, thread_rows
from profiler.run.code_origin import LIBRARY, TORCH, code_owner
from profiler.run.model import Run, Site
from profiler.run.tables import GARBAGE_COLLECTION, LINE_OF, ONE_OFF

LEAST_TO_GROW: Final = 60
"""Steps from which their thirds tell whether steps grow. A choice: twenty steps in each."""
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
_LINELESS: Final = (*CORELESS_CATEGORIES, RECORDER_KIND)
_WORK: Final = ("python", "framework", "compute")
_OWNERS: Final = {TORCH: Owner.TORCH, LIBRARY: Owner.LIBRARY}
_NOWHERE: Final = Origin(Owner.UNKNOWN, "", None, "")


T = TypeVar("T")
_Sums = defaultdict[T, float]


def _sums() -> _Sums[Any]:
    return defaultdict(float)


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


@dataclass(frozen=True, eq=False, slots=True)
class DeviceRecord:
    """What the analysis found out about the device of the rank that stands for the run."""

    window: Window
    """Its steps."""
    breakdown: Mapping[str, Measure]
    """Seconds per step by category."""
    idle: Sequence[IdleBlame]
    """Its idle time by what the host did meanwhile; empty: it has no queue, or its activities were not recorded."""


class _Amount(NamedTuple):
    """Seconds with the ends of their interval, and the stack samples that show them."""

    seconds: float
    low: float
    high: float
    samples: float = 0.0


def _exactly(seconds: float) -> _Amount:
    return _Amount(seconds, seconds, seconds)


def make_ledger(stacks: Stacks, ranks: Sequence[RankRecord], analysed: Window, device: DeviceRecord) -> Ledger:
    """The ledger of a run.

    :param analysed: the measured window of the rank that stands for the run.
    """
    run = stacks.run
    is_unseen = run.step is not None and run.step.is_whole_run
    cells, wall = list[Cell](), dict[tuple[int, str, Period], float]()
    moved, active = dict[int, float](), dict[int, float]()
    for record in ranks:
        window = record.window if len(record.window) else _main_thread(run, record.window)
        if len(record.window):
            period = Period.UNSEEN if is_unseen else Period.STEPS
            found, share = _Steps(stacks, record, period).cells()
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
    of_device = [replace(cell, period=measured) for cell in _device_cells(device, analysed.rank)]
    if of_device:
        wall[analysed.rank, DEVICE, measured] = device.window.wall_ns / NS_PER_S
    cells = sorted((*cells, *of_device), key=lambda cell: -cell.seconds)
    steps = {MAIN: len(analysed), DEVICE: len(device.window)}
    usual = () if is_unseen else _usual(run, analysed)
    of_analysed = next((each for each in ranks if each.window is analysed), None)
    phases = _usual_phases(run, analysed, of_analysed) if usual and of_analysed else {}
    return Ledger(tuple(cells), wall, moved, active, steps, usual=usual, usual_phases=phases, rank=analysed.rank)


def _usual(run: Run, window: Window) -> Quartiles:
    """`Ledger.usual`."""
    delays = step_delays(run, window) if len(window) >= LEAST_TO_GROW else None
    return () if delays is None else _quartiles(window.wall - delays)


def _quartiles(ns: npt.NDArray[Any]) -> Quartiles:
    """Quartiles, so that neither rare work nor a short disturbance counts."""
    thirds = np.array_split(ns, 3)
    low, middle, high = (np.array([np.percentile(third, at) for third in thirds]) / NS_PER_S for at in (25, 50, 75))
    return tuple(zip(low.tolist(), middle.tolist(), high.tolist(), strict=True))


def _usual_phases(run: Run, window: Window, record: RankRecord) -> dict[str, Quartiles]:
    """`Ledger.usual_phases`."""
    if record.host is None:
        return {}
    spans = exact_phases(run, window, record.host, record.stages)
    ns = {name: covered_within(each, window.begin, window.end) for name, each in spans.items() if len(each)}
    ns[""] = window.wall - np.sum([*ns.values(), np.zeros(len(window))], axis=0)
    return {name: _quartiles(each) for name, each in ns.items()}


def _main_thread(run: Run, window: Window) -> Window:
    """An empty window of the main thread with most samples, in a run without a step."""
    main = run.stacks[run.stacks["pid"] == run.stacks["tid"]]
    pids, counts = np.unique(main["pid"], return_counts=True)
    pid = int(pids[np.argmax(counts)]) if len(pids) else 0
    return replace(window, pid=pid, tid=pid)


def _other_periods(run: Run, window: Window) -> Iterator[tuple[Period, Intervals]]:
    """The time of a thread outside of its measured steps."""
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
    """The cells of a period of which only samples tell what ran."""
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
        kind = _kind(_sampled_kind(stacks, key // 2, bool(key % 2)), origin)
        groups[kind, origin.without_functions()].append((key // 2, amount))
    when = Recurrence.ONCE if period is Period.ONE_OFF else Recurrence.OUTSIDE
    for (kind, origin), parts in groups.items():
        amount = sum(part for _, part in parts)
        share, whole = amount / sampled, sampled * scale / NS_PER_S
        low, high = share_interval(share, n)
        of_cell = _Amount(share * whole, low * whole, high * whole, n * share)
        yield _cell(window.rank, period, kind, _named(stacks, origin, parts), of_cell, recurrence=when)
    rest = (total - sampled * scale) / NS_PER_S
    if rest > 0:
        yield _cell(window.rank, period, UNATTRIBUTED, _NOWHERE, _exactly(rest), recurrence=when)


def _named(stacks: Stacks, origin: Origin, parts: Iterable[tuple[int, float]]) -> Origin:
    """The origin of these stacks with the function that takes most of their time, and with what leads to most of it."""
    functions, callers, lines = _sums(), _sums(), _sums()
    for number, amount in parts:
        found = origin_of(stacks, number)
        functions[found.function] += amount
        callers[found.called_by] += amount
        lines[found.registered_at] += amount
    half = sum(functions.values()) / 2
    called_by = next((name for name, amount in callers.items() if amount > half), "")
    registered_at = next((line for line, amount in lines.items() if amount > half), None)
    return replace(origin, function=most_frequent(functions), called_by=called_by, registered_at=registered_at)


def _kind(category: str, origin: Origin) -> str:
    """The kind of a category at a place."""
    is_wait = category in (*WAIT_CATEGORIES, RECORDER_KIND) and category != "ranks"  # imported code of that library
    return IMPORT_KIND if origin.owner is Owner.IMPORT and not is_wait else category


def _sampled_kind(stacks: Stacks, number: int, is_blocked: bool) -> str:
    """The kind of time that a stack shows by itself."""
    stack = stacks[number]
    if stacks.in_recorder[number] or stack.is_recorder:
        return RECORDER_KIND
    if named := stack.category or FIXED.get(stack.stratum, ""):
        return named
    if is_blocked:
        return "waiting"
    return "compute" if stack.in_torch else "python"


def _cell(
    rank: int, period: Period, kind: str, origin: Origin, amount: _Amount, *, recurrence: Recurrence, activity: str = ""
) -> Cell:
    if kind in _LINELESS:
        origin = Origin(Owner.RECORDER if kind == RECORDER_KIND else Owner.OTHERS, "", None, "")
    return Cell(
        rank, MAIN, period, activity, kind, origin.owner, origin.package, origin.place, origin.function, recurrence,
        every=0.0, seconds=amount.seconds, low=amount.low, high=amount.high, samples=amount.samples,
        called_by=origin.called_by, registered_at=origin.registered_at,
    )  # fmt: skip


def _device_cells(device: DeviceRecord, rank: int) -> Iterator[Cell]:
    """What the device did, and its idle time by what the host did meanwhile."""
    if not device.idle:
        return
    steps = len(device.window)
    when = Recurrence.EACH if steps >= LEAST_STEPS else Recurrence.UNKNOWN

    def cell(kind: str, per_step: float, row: IdleBlame | None = None) -> Cell:
        seconds = per_step * steps
        activity = row.state.name.lower().replace("_", " ") if row else ""
        how_often = Recurrence.ONCE if row and row.is_once else when
        return Cell(
            rank, DEVICE, Period.STEPS, activity, kind, Owner.USER if row and row.site else Owner.UNKNOWN, "",
            row.site if row else None, row.subject if row else "", how_often, 0.0, seconds, seconds, seconds, 0.0,
        )  # fmt: skip

    for name, measure in device.breakdown.items():
        if name != "idle" and measure.value:
            yield cell(f"device {name}", measure.value)
    for row in device.idle:
        yield cell(f"idle: {row.category}", row.seconds_per_step, row)


class _Steps:
    """The measured steps of one rank, on the way to their cells."""

    def __init__(self, stacks: Stacks, record: RankRecord, period: Period) -> None:
        self._stacks, self._record, self._period = stacks, record, period
        self._window = record.window
        self._usual = Recurrence.EACH if len(self._window) >= LEAST_STEPS else Recurrence.UNKNOWN
        if period is Period.UNSEEN:
            self._usual = Recurrence.OUTSIDE

    def cells(self) -> tuple[list[Cell], float]:
        """The cells, and the share of the time that changed its kind."""
        strip, samples = self._record.strip, self._record.samples
        if strip is None:
            seconds = self._window.wall_ns / NS_PER_S
            return [self._cell(NOT_RECORDED, _NOWHERE, seconds)], 0.0
        totals = strip.ns.sum(axis=0).astype(np.float64)
        cells, explained = self._recorded(totals)
        rest, moved = totals - explained, 0.0
        if samples is not None:
            rows = samples.weight[:, None] * samples.line_shares
            rows[:, explained > 0] = 0.0
            rows, rest, moved = with_kinds(rows, rest)
            cells += self._sampled(samples, rows)
        cells += [
            self._cell(HOST_CATEGORIES[code], _NOWHERE, rest[code] / NS_PER_S)
            for code in np.flatnonzero(rest >= 1).tolist()
        ]
        cells = self._without_recording(self._with_collections(cells))
        return list(self._with_input_lines(cells)), moved / self._window.wall_ns

    def _cell(self, kind: str, origin: Origin, seconds: float) -> Cell:
        return _cell(self._window.rank, self._period, kind, origin, _exactly(seconds), recurrence=self._usual)

    # ------------------------------------------------------------ records with a line

    def _recorded(self, totals: Floats) -> tuple[list[Cell], Floats]:
        """The cells of recorded calls with a line, of a trace of all that it recorded; and their ns by kind."""
        run, host = self._stacks.run, self._record.host
        found: dict[tuple[int, Site | None], float] = {}
        if host is not None and run.is_trace:
            found = self._traced(host)
        elif host is not None:
            sites = {(site.file, site.line): site for site in run.sites}
            for line, ns in calls_by_line(run, host, self._window)[0].items():
                found |= {(code, sites[line]): float(ns[code]) for code in _EXACT if ns[code]}
            found |= self._checkpoints(host)
        sums: _Sums[int] = _sums()
        for (code, _), amount in found.items():
            sums[code] += amount
        explained = np.array([min(total, sums[code]) for code, total in enumerate(totals.tolist())])
        cells = [
            self._cell(HOST_CATEGORIES[code], self._line(site), amount * explained[code] / sums[code] / NS_PER_S)
            for (code, site), amount in found.items()
        ]
        return cells, explained

    def _traced(self, host: HostTimeline) -> dict[tuple[int, Site | None], float]:
        run = self._stacks.run
        cut = overlaps(host.segments.begin, host.segments.end, self._window.spans)
        site = np.full(len(host.source), -1) if host.site is None else host.site
        ns: defaultdict[tuple[int, Site | None], float] = defaultdict(float)
        keys = np.stack([host.category[cut.left], site[cut.left]], axis=1)
        pairs, row = np.unique(keys, axis=0, return_inverse=True)
        lengths = np.bincount(row.ravel(), cut.end - cut.begin, minlength=len(pairs))
        for (code, number), length in zip(pairs.tolist(), lengths.tolist(), strict=True):
            ns[code, run.sites[number] if number >= 0 else None] += length
        return ns

    def _checkpoints(self, host: HostTimeline) -> dict[tuple[int, Site | None], float]:
        """ns of recorded checkpoints by line; empty where the line of one is not known: older runs have none, nor have
        regions that the program marks itself."""
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

    def _line(self, site: Site | None) -> Origin:
        if site is None:
            return _NOWHERE
        owner = _OWNERS.get(code_owner(site.file, self._stacks.folders), Owner.USER)
        return Origin(owner, "", self._stacks.relative(site), "")

    # ------------------------------------------------------------ samples

    def _sampled(self, samples: ClassifiedSamples, rows: Floats) -> list[Cell]:
        """The cells of stack samples, whose rows have ns by kind."""
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
                if self._stacks[number].is_recorder:
                    groups["", RECORDER_KIND, _NOWHERE].append((number, amount))
                    continue
                if kind in CORELESS_CATEGORIES:
                    groups["", kind, _NOWHERE].append((number, amount))
                    continue
                collected = amount * float(collecting[number]) if kind in _WORK else 0.0
                for part, name in ((amount - collected, _kind(kind, origin)), (collected, GARBAGE_KIND)):
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
            of_cell = _Amount(seconds, seconds * max(0.0, 1 - below / share), max(seconds, high), count)
            named = _named(self._stacks, origin, parts)
            cell = replace(self._cell(kind, named, seconds), activity=stage, **of_cell._asdict())
            recurrence, every = self._recurrence(cell, parts, long)
            callers = self._callers(parts)
            cells.append(replace(cell, recurrence=recurrence, every=every, callers=callers))
            members.append(dict(parts))
        return _with_entries(self._stacks, cells, members)

    def _callers(self, parts: Sequence[tuple[int, float]]) -> frozenset[tuple[str, int]]:
        """The user's lines above the innermost one through which most of the time passes."""
        sums: _Sums[Site] = _sums()
        for number, amount in parts:
            for site in {*self._stacks.user_frames(number)[:-1]}:
                sums[site] += amount
        most = sum(amount for _, amount in parts) / 2
        return frozenset(self._stacks.relative(site).place for site, amount in sums.items() if amount > most)

    def _activities(self, samples: ClassifiedSamples) -> dict[int, str]:
        """The phase or the stage that each stack is mostly in."""
        if self._period is Period.UNSEEN or not has_hooked_steps(self._stacks.run):
            return {}
        names = {n: "" if stack.phase == BETWEEN else stack.phase for n, stack in samples.stacks.items()}
        _, _, within = sampled_phases(self._stacks, samples, self._record.stages)
        for name, share in within.items():
            names |= dict.fromkeys(np.flatnonzero(share > 1 / 2).tolist(), str(name))
        return names

    def _recurrence(self, cell: Cell, parts: Iterable[tuple[int, float]], long: _LongSteps) -> tuple[Recurrence, float]:
        """Whether a cell occurs in each step, and else the distance between two steps with it."""
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
        """The cells, of which input that no sample shows is divided among the lines of its recorded parts."""
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
        """The cells with the recorded time of collections; what samples show more or less is the interpreter's."""
        recorded, shown = self._collections().measure() / NS_PER_S, _seconds(cells, GARBAGE_KIND)
        python = _seconds(cells, "python")
        wanted = min(recorded, shown + python)
        if not wanted and not shown:
            return cells
        if not shown:
            cells = [*cells, self._cell(GARBAGE_KIND, Origin(Owner.PYTHON, "", None, ""), wanted)]
        factors = {GARBAGE_KIND: wanted / shown if shown else 1.0}
        factors["python"] = (shown + python - wanted) / python if python else 1.0
        return [_scaled(cell, factors.get(cell.kind, 1.0)) for cell in cells]

    def _without_recording(self, cells: list[Cell]) -> list[Cell]:
        """The cells with the cost of recording as a cell of its own: what marks recorded of it, and an estimate for
        hooks. It is taken out of the work in a step."""
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
        return [*remaining, self._cell(RECORDER_KIND, _NOWHERE, share * work)]


def _seconds(cells: Iterable[Cell], kind: str) -> float:
    return sum(cell.seconds for cell in cells if cell.kind == kind)


def _scaled(cell: Cell, factor: float) -> Cell:
    if factor == 1.0:
        return cell
    amount = (factor * each for each in (cell.seconds, cell.low, cell.high, cell.samples))
    return replace(cell, **_Amount(*amount)._asdict())


def with_kinds(rows: Floats, totals: Floats) -> tuple[Floats, Floats, float]:
    """Samples with the kinds of the strip.

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
    """The share of each stack's samples that lies inside, of `count` stacks."""
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
        """Whether nearly all of these stacks' time lies in long steps."""
        if not len(self._inside):
            return False
        pairs = tuple(parts)
        inside = sum(amount * self._inside[number] for number, amount in pairs)
        return bool(inside >= MOSTLY * sum(amount for _, amount in pairs))


def _with_entries(stacks: Stacks, cells: list[Cell], members: Sequence[Mapping[int, float]]) -> list[Cell]:
    """Periodic cells with the outermost line that only such steps run."""
    rare: _Sums[int] = _sums()
    total: _Sums[int] = _sums()
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
