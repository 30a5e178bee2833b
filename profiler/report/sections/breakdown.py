"""Where the time of a step goes on the host, in seconds and as shares, per side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from profiler.analyse.model import DEVICE_CATEGORIES, HOST_CATEGORIES, Measure
from profiler.report.blocks import Bar, Block, Cell, NotMeasured, Section, Segment, StackedBars, Table
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput, ReportSide
from profiler.report.table import Field, make_table, missing_cell, percent, phrase, seconds_cell, share_cell
from profiler.report.text import NO_REASON, describe

TITLE = "Where the host's time goes"
_DEVICE_CALLS = frozenset({"sync", "copy", "launch"})
"""Categories in which a run without a queue has no time."""
_TONES: Final[Mapping[str, str]] = {
    "input": "c1",
    "sync": "c2",
    "copy": "c3",
    "launch": "c4",
    "framework": "c5",
    "compute": "c6",
    "log": "c7",
    "checkpoint": "c8",
    "python": "c9",
    "unattributed": "c10",
    "communication": "c5",
    "idle": "idle",
}
"""Tones of the host's and the device's categories; the same name has the same tone in both."""
MEANINGS: Final[Mapping[str, str]] = {
    "input": "waiting for data, tokenization",
    "sync": "blocked until the device, or a worker, finished",
    "copy": "in a copy call, not blocked",
    "launch": "other calls toward the device",
    "framework": "inside the framework's operators",
    "compute": "operators that are the work itself",
    "log": "logging",
    "checkpoint": "writing checkpoints",
    "python": "Python code of the program",
    "unattributed": "nothing was recorded",
    "communication": "between devices",
    "idle": "nothing to do",
}


def build(report_input: ReportInput) -> Section:
    """Bars on one scale, bars as shares, and the numbers behind them."""
    sides = report_input.sides
    gaps = tuple(
        NotMeasured(f"breakdown of {side.label}", side.why_no_breakdown())
        for side in sides
        if not side.detailed.breakdown
    )
    if len(gaps) == len(sides):
        return Section("breakdown", TITLE, gaps)
    shares = share_bars(sides, "Shares of a step's host time")
    blocks: list[Block] = []
    if len(sides) > 1:
        blocks.append(StackedBars("Seconds per step, on one scale", category_bars(sides, share=False)))
    blocks.extend(shares)
    names = categories(sides)
    if report_input.has_no_queue:
        measured = sides[0].detailed.breakdown
        names = tuple(name for name in names if measured[name].value or name not in _DEVICE_CALLS)
    blocks.append(_table(sides, names, slowdown_note(sides)))
    return Section("breakdown", TITLE, (*blocks, *gaps), brief=shares)


def categories(sides: Iterable[ReportSide], *, device: bool = False) -> tuple[str, ...]:
    """The categories that any side has, in their standard order."""
    standard = DEVICE_CATEGORIES if device else HOST_CATEGORIES
    present = {name for side in sides for name in _breakdown(side, device)}
    return (*(name for name in standard if name in present), *sorted(present.difference(standard)))


def _breakdown(side: ReportSide, device: bool) -> Mapping[str, Measure]:
    return side.detailed.device_breakdown if device else side.detailed.breakdown


def category_bars(sides: tuple[ReportSide, ...], *, share: bool, device: bool = False) -> tuple[Bar, ...]:
    """A bar per side that has a breakdown of its host's or its device's time."""
    bars = []
    for side in sides:
        measured = _breakdown(side, device)
        names = (name for name in categories(sides, device=device) if name in measured)
        values = {name: value for name in names if (value := measured[name].value)}
        total = sum(values.values())
        if total > 0:
            segments = tuple(
                Segment(name, value, percent(value / total) if share else phrase(value, "s"), _TONES.get(name, "c8"))
                for name, value in values.items()
            )
            bars.append(Bar(side.label, segments, phrase(total, "s")))
    return tuple(bars)


def share_bars(sides: tuple[ReportSide, ...], caption: str, *, device: bool = False) -> tuple[StackedBars, ...]:
    """The breakdown as shares, or nothing where no side has one."""
    bars = category_bars(sides, share=True, device=device)
    return (StackedBars(caption, bars, share=True),) if bars else ()


def slowdown_note(sides: tuple[ReportSide, ...]) -> str:
    """How much slower the breakdown pass was, per side; empty for a single run."""
    texts = []
    for side in sides:
        if side.slowdown is None:
            continue
        if side.slowdown.value is None:
            texts.append(f"{side.label} not measured ({describe(side.slowdown.reason) or NO_REASON})")
        else:
            texts.append(f"{side.label} {side.slowdown.value:.2f}×")
    if not texts:
        return ""
    return f"A step of the breakdown pass against one of the light runs: {', '.join(texts)}. Its times enter no ratio."


def _table(sides: tuple[ReportSide, ...], names: Iterable[str], note: str) -> Table:
    fields: list[Field[str]] = [Field("Category", lambda name: Cell(name, note=MEANINGS.get(name, "")))]
    for side in sides:
        fields += _fields(side)
    caption = "Host seconds per step; the categories exclude each other and sum to the step"
    return make_table(caption, fields, names, note)


def _fields(side: ReportSide) -> tuple[Field[str], Field[str]]:
    measured = side.detailed.breakdown
    total = sum(measure.value for measure in measured.values() if measure.value is not None)

    def missing(name: str) -> Cell:
        return missing_cell(measured[name].reason if name in measured else side.why_no_breakdown())

    def value(name: str) -> Cell:
        seconds = measured[name].value if name in measured else None
        return missing(name) if seconds is None else seconds_cell(seconds)

    def share(name: str) -> Cell:
        seconds = measured[name].value if name in measured else None
        if seconds is None:
            return missing(name)
        return share_cell(seconds / total) if total else Cell("0", "%", 0.0)

    return Field(side.label, value, number=True, tone=side.tone), Field("Share", share, number=True, bar=True)


PLUGIN = SectionPlugin("breakdown", TITLE, 30, build)
