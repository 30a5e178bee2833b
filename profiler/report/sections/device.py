"""Shows the device: utilization over time, what a step asks of it, what left it idle, and the lines behind that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from profiler.analyse.model.device import CallSite, DevicePart, HostState, IdleBlame, KernelTime
from profiler.analyse.model.measures import Series, Topic
from profiler.core.metrics import PER_STEP, find_metric, in_order
from profiler.core.units import count
from profiler.report.blocks import NOTHING, Block, Cell, Curve, Lines, NotMeasured, Panel, Table, side_tone
from profiler.report.build import section
from profiler.report.category_text import category_label
from profiler.report.model import ReportInput, ReportSide, key_measures
from profiler.report.sections.breakdown import share_bars
from profiler.report.table import (
    Field,
    RowKey,
    compare_table,
    count_cell,
    in_one_table,
    make_table,
    more_lines,
    percent,
    phrase,
    quantity,
    ratio_text,
    row_key,
    seconds_cell,
    share_cell,
    sides_table,
    site_cell,
)
from profiler.report.text import host_state, kernel_name, listed, plural, shortened
from profiler.run.tables import RECOMPILED, TOKENIZED

# ---------------------------------------------------------------- utilization

_LEARNING = frozenset({"loss", "accuracy", "heldout_loss", "heldout_accuracy"})
"""Series that are no utilization: what a model learns."""
_CPU = frozenset({"host_cpu", "device_cpu"})
"""Series of parts of what `machine_cpu` and `device_utilization` show."""
_SHARE_UNITS = frozenset({"1", "", "share"})
_PERCENT_UNITS = frozenset({"%", "percent"})
_UNIT_ORDER = (*sorted(_SHARE_UNITS | _PERCENT_UNITS), "cores")
_NO_SIDE = 3
"""Tones of sides that seldom appear: curves that are no sides begin after them."""
_MAX_CURVES = 6
"""Readers cannot distinguish more lines in one panel."""


@section("utilization", "Utilization over time", 40, "device")
def utilization(report_input: ReportInput) -> Iterator[Block]:
    """Show a figure for each unit: a plot for each side with the same axes; of a single series one plot."""
    by_side = [(side, _series(side)) for side in report_input.sides]

    def position(unit: str) -> tuple[int, str]:
        last = len(_UNIT_ORDER) + (not unit.endswith("/s"))
        return (_UNIT_ORDER.index(unit) if unit in _UNIT_ORDER else last, unit)

    for unit in sorted({item.unit for _, series in by_side for item in series}, key=position):
        yield _lines([(side, [item for item in series if item.unit == unit]) for side, series in by_side], unit)
    for side, series in by_side:
        if not series:
            reason = "no step was measured over which it could be drawn"
            yield NotMeasured(f"utilization over time of {side.label}", reason)


def _series(side: ReportSide) -> list[Series]:
    """Return the series of the first light run that was sampled, else of the breakdown pass."""
    for analysis in (*side.runs, side.detailed):
        if series := [item for item in analysis.series if item.name not in _LEARNING and len(item.times) > 1]:
            has_device = any(item.name == "device_utilization" for item in series)
            return [item for item in series if not (has_device and item.name in _CPU)]
    return []


def _lines(by_side: list[tuple[ReportSide, list[Series]]], unit: str) -> Lines:
    by_side = [(side, series[:_MAX_CURVES]) for side, series in by_side if series]
    names = list(dict.fromkeys(item.name for _, series in by_side for item in series))
    is_share = unit in _SHARE_UNITS or unit in _PERCENT_UNITS
    scale, shown = (100.0 if unit in _SHARE_UNITS else 1.0, "%") if is_share else _scale(unit, by_side)

    def curve(side: ReportSide, item: Series) -> Curve:
        tone = side_tone(names.index(item.name) + _NO_SIDE) if several else side.tone
        label = _label(item.name) if several else side.label
        return Curve(label, tone, item.times, tuple(scale * value for value in item.values))

    several = len(names) > 1
    panels = tuple(Panel(side.label, tuple(curve(side, item) for item in series)) for side, series in by_side)
    if not several:  # the sides in one plot
        panels = (Panel("", tuple(each for panel in panels for each in panel.curves)),)
    return Lines(", ".join(map(_label, names)), "seconds", shown, panels, y_max=100.0 if is_share else None)


def _scale(unit: str, by_side: Iterable[tuple[ReportSide, list[Series]]]) -> tuple[float, str]:
    """Return a factor, and the unit after it: an axis of bytes is in MB or GB."""
    largest = max(max(item.values) for _, series in by_side for item in series)
    if unit not in {"bytes", "s"} or not largest:
        return 1.0, unit
    number, shown = quantity(largest, unit)
    return float(number.replace(",", "")) / largest, shown


def _label(name: str) -> str:
    metric = find_metric(name)
    return metric.label if metric else name.replace("_", " ")


# ---------------------------------------------------------------- counters


_SHOWN_ABOVE_ZERO = (f"{TOKENIZED}{PER_STEP}", f"{RECOMPILED}{PER_STEP}")
"""Most programs neither tokenize nor compile in their steps: a row of zeros would tell nothing."""


@section("counters", "Counters per step", 50, "device")
def counters(report_input: ReportInput) -> Iterator[Block]:
    """Show one table of syncs, copies, bytes, allocations and launches; without a queue, of those that there are."""
    sides = report_input.sides
    names = {name for side in sides for name in (*side.measures, *side.detailed.measures) if name.endswith(PER_STEP)}
    if report_input.has_no_queue:
        names = {name for name in names if any(side.has(name) for side in sides)}
    names = {name for name in names if name not in _SHOWN_ABOVE_ZERO or any(side.measure(name).value for side in sides)}
    if report_input.comparison is not None:  # the key numbers of a comparison have these
        names -= {name for name in key_measures(report_input) if any(side.has(name) for side in sides)}
    if names:
        note = "Counted, not sampled: every call of the measured steps is in these numbers."
        yield compare_table(report_input, in_order(names), "Calls, bytes and times", per_step=True, note=note)
    elif report_input.comparison is None and not report_input.has_no_queue:
        yield NotMeasured("counters per step", "the program's device counts nothing")


# ---------------------------------------------------------------- idle time

_SITE = Field[IdleBlame]("At", lambda blame: site_cell(blame.site) if blame.site else Cell(NOTHING))
_SHARE = Field[IdleBlame]("Share", lambda blame: share_cell(blame.share_of_wall), number=True, bar=True)
_IDLE_FIELDS = (
    Field[IdleBlame]("The host was", lambda blame: Cell(host_state(blame), note=category_label(blame.category))),
    _SITE,
    _SHARE,
    Field[IdleBlame]("Idle", lambda blame: seconds_cell(blame.seconds_per_step), number=True),
    Field[IdleBlame]("Gaps", lambda blame: count_cell(blame.gaps_per_step), number=True),
)
_BRIEF_FIELDS = (Field[IdleBlame]("The host was", lambda blame: Cell(host_state(blame))), _SITE, _SHARE)


def _share_and_gaps(blame: IdleBlame) -> Cell:
    gaps = f", {count(blame.gaps_per_step)} gaps" if blame.gaps_per_step else ""
    return share_cell(blame.share_of_wall, note=f"{phrase(blame.seconds_per_step, 's')}{gaps}")


_COMPARED_IDLE_FIELDS = (Field[IdleBlame]("Share of wall", _share_and_gaps, number=True),)
_MAX_CAUSES, _BRIEF_CAUSES, _SMALLEST_CAUSE = 12, 3, 0.005
_PART_NAMES = {"compute": "computing", "h2d": "copies from the host", "d2h": "copies to the host",
               "d2d": "copies within the device or between devices", "memset": "filling memory"}  # fmt: skip
_PART_NAME = (Field[DevicePart]("Work", lambda part: Cell(_PART_NAMES.get(part.kind, part.kind), note=part.memory)),)
_PART_FIELDS = (
    Field[DevicePart]("Share", lambda part: share_cell(part.share), number=True, bar=True),
    Field[DevicePart]("Not hidden", lambda part: share_cell(part.exposed), number=True),
)
_HIDDEN_NOTE = (
    "A copy is hidden while a kernel computes. Communication is hidden while a kernel computes or a copy runs."
)


_MUCH_SLOWER = 1.2
"""Ratio of step times from which the idle time of a breakdown pass is clearly not that of the light runs."""


def idle_summary(side: ReportSide) -> Iterator[Table]:
    """Yield the largest causes of device idle time with their lines; nothing where none is known."""
    # the share of recording is in the full table: the first screen is about the program
    causes = [row for row in side.detailed.idle if row.state is not HostState.RECORDING]
    if causes:
        recording = sum(row.share_of_wall for row in side.detailed.idle if row.state is HostState.RECORDING)
        note = f"The recorder's own {percent(recording)} left out. " if recording else ""
        slowdown = side.slowdown.value if side.slowdown else None
        if slowdown is not None and slowdown >= _MUCH_SLOWER:
            note += (
                f"Recording made the steps of this pass {ratio_text(slowdown)} as long as those of the light runs. "
                "There the device is idle for a smaller share."
            )
        caption = f"{side.label}: largest causes of device idle time{side.source_note}"
        yield make_table(caption, _BRIEF_FIELDS, causes[:_BRIEF_CAUSES], note.strip())


@section(
    "idle", "What left the device idle", 60, "device", brief=lambda report_input: idle_summary(report_input.sides[0])
)
def idle(report_input: ReportInput) -> Iterator[Block]:
    """Show the device's own breakdown, then the causes on each side; nothing for a run that has no queue."""
    sides = report_input.sides
    if report_input.has_no_queue and not any(side.detailed.idle for side in sides):
        return
    parts = [
        (side, sorted(side.detailed.device_parts, key=lambda part: -part.share))
        for side in sides
        if len(side.detailed.device_parts) > 1
    ]
    if parts:
        caption = f"the device's work, share of time{parts[0][0].source_note}"
        is_hidden = any(part.exposed < part.share for _, each in parts for part in each)
        fields, note = (_PART_FIELDS, _HIDDEN_NOTE) if is_hidden else (_PART_FIELDS[:1], "")
        yield sides_table(
            caption, parts, lambda part: row_key(None, part.kind, part.memory), _PART_NAME, fields, note=note
        )
    else:
        yield from share_bars(sides, "Device time of a step, as shares", device=True)
    known = [side for side in sides if side.detailed.idle]
    for together in in_one_table(known, _shown_causes, _idle_key):
        yield _idle_causes(together)
    for side in sides:
        if side not in known:
            topics, otherwise = (Topic.IDLE_BLAME, Topic.DEVICE_BREAKDOWN), "no gap between activities was recorded"
            yield side.not_measured("device idle time", *topics, otherwise=otherwise)


def _idle_key(blame: IdleBlame) -> RowKey:
    return row_key(blame.site, host_state(blame), blame.category)


def _ranked_causes(side: ReportSide) -> list[IdleBlame]:
    return sorted(side.detailed.idle, key=lambda blame: -blame.share_of_wall)


def _shown_causes(side: ReportSide) -> Sequence[IdleBlame]:
    causes = _ranked_causes(side)
    return [row for row in causes[:_MAX_CAUSES] if row.share_of_wall >= _SMALLEST_CAUSE] or causes[:1]


def _idle_causes(sides: Sequence[ReportSide]) -> Table:
    """Tell what the host did while the device was idle, the largest shares first; of several sides in one table."""
    several, rows = len(sides) > 1, []
    totals: list[str] = []
    notes: list[str] = []
    for side in sides:
        causes, shown = _ranked_causes(side), _shown_causes(side)
        remaining = causes[len(shown) :]
        rows.append((side, shown))
        of = "" if totals else " of the wall time"
        totals.append(f"{percent(sum(blame.share_of_wall for blame in causes))}{of}{f' in {side.label}' * several}")
        if remaining:
            share = sum(blame.share_of_wall for blame in remaining)
            notes.append(f"{f'{side.label}: ' * several}{more_lines(len(remaining), share)} of the time.")
    caption = f"device idle {listed(totals)}{sides[0].source_note}"
    notes.append("Seconds and gaps are those of a step.")
    fields = _COMPARED_IDLE_FIELDS if several else _IDLE_FIELDS[2:]
    return sides_table(caption, rows, _idle_key, _IDLE_FIELDS[:2], fields, note=" ".join(notes))


# ---------------------------------------------------------------- kernels

_LONGEST_KERNEL = 64


def _kernel(row: KernelTime) -> Cell:
    name = kernel_name(row.name)
    short = shortened(name, _LONGEST_KERNEL)
    return Cell(short, title="" if short == row.name else row.name, code=True)


_KERNEL_NAME = (Field[KernelTime]("Kernel", _kernel),)
_KERNEL_FIELDS = (
    Field[KernelTime]("Time", lambda row: seconds_cell(row.seconds_per_step), number=True),
    Field[KernelTime]("Share", lambda row: share_cell(row.share), number=True, bar=True),
    Field[KernelTime]("Calls", lambda row: count_cell(row.calls_per_step), number=True),
    Field[KernelTime](
        "Time of a call", lambda row: seconds_cell(row.seconds_per_step / row.calls_per_step), number=True
    ),
)


@section("kernels", "Kernels by time", 65, "device")
def kernels(report_input: ReportInput) -> Iterator[Block]:
    """Show the kernels with most time; nothing for a side whose kernels were not recorded."""
    known = [side for side in report_input.sides if side.detailed.kernels]
    for sides in in_one_table(known, lambda side: side.detailed.kernels, _kernel_key):
        several = len(sides) > 1
        caption = f"kernels by time, per step{sides[0].source_note}"
        fields = _KERNEL_FIELDS[:3:2] if several else _KERNEL_FIELDS
        yield sides_table(caption, [(side, side.detailed.kernels) for side in sides], _kernel_key, _KERNEL_NAME, fields)


def _kernel_key(row: KernelTime) -> RowKey:
    return row_key(None, row.name)


# ---------------------------------------------------------------- device calls

_READ = "might_sync"
_MAX_CALL_SITES = 15


def _operation(row: CallSite) -> Cell:
    if not row.operation:
        return Cell(row.kind)
    return Cell(row.operation, note="" if row.kind == _READ else row.kind.replace("_", " "))


_CALL_FIELDS = (
    Field[CallSite]("Line", lambda row: site_cell(row.site)),
    Field[CallSite]("Operation", _operation),
    Field[CallSite]("Calls", lambda row: count_cell(row.calls_per_step), number=True),
    Field[CallSite]("Time", lambda row: seconds_cell(row.seconds_per_step), number=True, bar=True),
    Field[CallSite]("Blocked", lambda row: seconds_cell(row.blocked_per_step), number=True),
    Field[CallSite](
        "Bytes", lambda row: Cell(*quantity(row.bytes_per_step, "bytes"), sort=row.bytes_per_step), number=True
    ),
)


def _blocked(row: CallSite) -> Cell:
    note = f"{phrase(row.blocked_per_step, 's')} blocked" if row.blocked_per_step else ""
    return replace(seconds_cell(row.seconds_per_step), note=note)


def _line_of_call(row: CallSite) -> Cell:
    """Return the line with what it does there, for a table whose columns are the sides."""
    line, operation = site_cell(row.site), _operation(row)
    does = ", ".join(filter(None, (operation.text, operation.note)))
    return replace(line, note=f"{does} in {line.note}" if line.note else does)


_COMPARED_CALL_FIELDS = (
    Field[CallSite]("Time", _blocked, number=True),
    Field[CallSite](
        "Calls",
        lambda row: replace(
            count_cell(row.calls_per_step), note=phrase(row.bytes_per_step, "bytes") if row.bytes_per_step else ""
        ),
        number=True,
    ),
)


@section("hot", "Device calls by line", 70, "device")
def call_sites(report_input: ReportInput) -> Iterator[Block]:
    """Show the device calls of each line of the program's code and their cost; nothing for a device without a queue."""
    if report_input.has_no_queue and not any(side.detailed.call_sites for side in report_input.sides):
        return
    known = [side for side in report_input.sides if side.detailed.call_sites]
    yield from map(_calls_by_line, in_one_table(known, _shown_calls, _call_key))
    for side in report_input.sides:
        if side not in known:
            otherwise = "no call with a line of the program's own was recorded"
            yield side.not_measured("device calls by line", Topic.CALL_SITES, otherwise=otherwise)


def _shown_calls(side: ReportSide) -> Sequence[CallSite]:
    return side.detailed.call_sites[:_MAX_CALL_SITES]


def _call_key(row: CallSite) -> RowKey:
    return row_key(row.site, row.operation, row.kind)


def _calls_by_line(sides: Sequence[ReportSide]) -> Table:
    several, notes = len(sides) > 1, []
    for side in sides:
        hidden = len(side.detailed.call_sites) - _MAX_CALL_SITES
        if hidden > 0:
            are = "is" if hidden == 1 else "are"
            notes.append(f"{f'{side.label}: ' * several}{plural(hidden, 'more line')} {are} left out.")
    on_cpu = all(row.kind == _READ for side in sides for row in side.detailed.call_sites)
    caption = "reads that may wait on a GPU, by line" if on_cpu else "calls toward the device by line"
    caption += ", per step"
    if on_cpu:
        notes.append("A run with --virtual-cuda, or with --count, tells which of them wait there.")
    rows = [(side, _shown_calls(side)) for side in sides]
    if several:
        names = (Field[CallSite]("Line", _line_of_call),)
        return sides_table(caption, rows, _call_key, names, _COMPARED_CALL_FIELDS, note=" ".join(notes))
    fields = _CALL_FIELDS[2 : 4 if on_cpu else None]
    return sides_table(caption, rows, _call_key, _CALL_FIELDS[:2], fields, note=" ".join(notes))


PLUGINS = (utilization, counters, idle, kernels, call_sites)
