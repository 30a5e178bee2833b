"""Where a step's host time goes, in seconds and as shares, before and after."""

from __future__ import annotations

from collections.abc import Iterable

from profiler.report.blocks import Bar, Block, Cell, Column, NotMeasured, Section, Segment, StackedBars, Table
from profiler.report.build import SectionPlugin
from profiler.report.names import MEANINGS, categories, tone
from profiler.report.quantities import measure_cell, missing_cell, percent, phrase, seconds_cell, share_cell
from profiler.report.subject import Subject, View, breakdown_reason, views, without_queue
from profiler.report.text import NO_REASON, describe

TITLE = "Where the host's time goes"
_OF_DEVICE = frozenset({"sync", "copy", "launch"})
"""Categories that a run without a queue has no time in."""


def build(subject: Subject) -> Section:
    """Bars on one scale, bars as shares, and the numbers behind them."""
    sides = views(subject)
    if not any(view.any_detail.breakdown for view in sides):
        return Section(
            "breakdown", TITLE, tuple(NotMeasured(f"breakdown of {v.label}", breakdown_reason(v)) for v in sides)
        )
    shares = share_bars(sides, "Shares of a step's host time")
    blocks: list[Block] = []
    if len(sides) > 1:
        blocks.append(StackedBars("Seconds a step, on one scale", _bars(sides, share=False)))
    blocks.extend(shares)
    names = categories(sides)
    if without_queue(subject):
        names = tuple(name for name in names if sides[0].any_detail.breakdown[name].value or name not in _OF_DEVICE)
    blocks.append(_table(sides, names, slowdown_note(sides)))
    blocks.extend(
        NotMeasured(f"breakdown of {v.label}", breakdown_reason(v)) for v in sides if not v.any_detail.breakdown
    )
    return Section("breakdown", TITLE, tuple(blocks), brief=shares)


def share_bars(sides: tuple[View, ...], caption: str) -> tuple[StackedBars, ...]:
    """The breakdown as shares, or nothing where no side has one."""
    bars = _bars(sides, share=True)
    return (StackedBars(caption, bars, share=True),) if bars else ()


def slowdown_note(sides: tuple[View, ...]) -> str:
    """How much slower the breakdown pass was, side by side; empty for a single run."""
    said = []
    for view in sides:
        if view.slowdown is None:
            continue
        if view.slowdown.value is None:
            said.append(f"{view.label} not measured ({describe(view.slowdown.reason) or NO_REASON})")
        else:
            said.append(f"{view.label} {view.slowdown.value:.2f}×")
    if not said:
        return ""
    return f"A step of the breakdown pass against one of the light runs: {', '.join(said)}. Its times enter no ratio."


def _bars(sides: tuple[View, ...], *, share: bool) -> tuple[Bar, ...]:
    names = categories(sides)
    bars = []
    for view in sides:
        values = {name: view.any_detail.breakdown[name].value for name in names if name in view.any_detail.breakdown}
        known = {name: value for name, value in values.items() if value}
        total = sum(known.values())
        if total > 0:
            segments = (
                Segment(name, value, percent(value / total) if share else phrase(value, "s"), tone(name))
                for name, value in known.items()
            )
            bars.append(Bar(view.label, tuple(segments), phrase(total, "s")))
    return tuple(bars)


def _table(sides: tuple[View, ...], names: Iterable[str], note: str) -> Table:
    columns = [Column("Category")]
    for view in sides:
        columns += [Column(view.label, number=True, tone=view.tone), Column("Share", number=True)]
    rows = [_row(sides, name) for name in names]
    return Table(
        "Host seconds a step; the categories exclude each other and sum to the step", tuple(columns), tuple(rows), note
    )


def _row(sides: tuple[View, ...], name: str) -> tuple[Cell, ...]:
    cells = [Cell(name, note=MEANINGS.get(name, ""))]
    for view in sides:
        measured = view.any_detail.breakdown.get(name)
        total = sum(m.value for m in view.any_detail.breakdown.values() if m.value is not None)
        if measured is None or measured.value is None:
            reason = measured.reason if measured is not None else breakdown_reason(view)
            cells += [measure_cell(measured) if measured is not None else missing_cell(reason), missing_cell(reason)]
        else:
            cells += [
                seconds_cell(measured.value),
                share_cell(measured.value / total) if total else Cell("0", "%", 0.0),
            ]
    return tuple(cells)


PLUGIN = SectionPlugin("breakdown", TITLE, 30, build)
