"""The parts of a step, and the lines of the user's own code that its time went to."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from pathlib import PurePath

from profiler.analyse.model import MIN_SAMPLES, LineCost, Phase
from profiler.core.metrics import label
from profiler.report.blocks import NOTHING, Bar, Block, Cell, Section, Segment, StackedBars, Table, Text
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput, ReportSide
from profiler.report.table import Field, make_table, percent, phrase, seconds_cell, share_cell, short_site, site_cell
from profiler.report.text import step_text

TITLE = "Time by line"
PHASES = {
    "data": ("data", "c1"),
    "forward": ("forward", "c6"),
    "backward": ("backward", "c3"),
    "optimizer": ("optimizer", "c5"),
    "after the optimizer": ("after step", "c9"),
    "elsewhere": ("elsewhere", "idle"),
}
"""Phase -> a name short enough to stand beside a bar in a terminal, and its tone."""
_MAX_ROWS = 25
_BRIEF_ROWS = 6
_COMPARED_ROWS = 4
_SMALLEST_CATEGORY = 0.1
"""Share of a line's time below which a category is not mentioned."""


def callee_cell(line: LineCost) -> Cell:
    """What a line calls: the function, with its module or class; the title has the full name."""
    if not line.calls:
        return Cell("the line itself")
    return Cell(".".join(line.calls.replace("<locals>.", "").split(".")[-2:]), title=line.calls, code=True)


def _categories(line: LineCost) -> Cell:
    """The categories of a line, the largest first: `compute 80%, python 20%`."""
    total = sum(line.categories.values()) or 1.0
    ranked = sorted(((name, value / total) for name, value in line.categories.items()), key=lambda item: -item[1])
    shown = [(name, share) for name, share in ranked if share >= _SMALLEST_CATEGORY] or ranked[:1]
    if len(shown) == 1:
        return Cell(shown[0][0])
    return Cell(", ".join(f"{name} {100 * share:.0f}%" for name, share in shown))


_LINE = Field[LineCost]("Line", lambda line: site_cell(line.site))
_TIME = Field[LineCost]("Time per step", lambda line: seconds_cell(line.seconds_per_step), number=True)
_SHARE = Field[LineCost](
    "Share",
    lambda line: share_cell(line.share, note=f"{100 * line.low:.1f} to {100 * line.high:.1f}"),
    number=True,
    bar=True,
)
_SideLine = tuple[ReportSide, LineCost]
_Rank = tuple[LineCost | None, ...]
"""The line of each side that takes most time, that takes second most, ..."""
_CATEGORIES = Field[LineCost]("What it is", _categories)
_FIELDS = (_LINE, Field[LineCost]("In", callee_cell), _TIME, _SHARE, _CATEGORIES)


def build(report_input: ReportInput) -> Section | None:
    """Nothing where no stacks were sampled: the section with the flame graph has the reason."""
    sides = [side for side in report_input.sides if side.detailed.lines]
    if not sides:
        return None
    blocks: list[Block] = []
    for side in sides:
        if side.detailed.step:
            blocks.append(Text(f"A step is: {step_text(side.detailed.step)}."))
        blocks += _phase_bars(side)
        blocks.append(_table(side))
    brief: tuple[Block, ...] = ()
    # parts and lines that are compared side by side are below the verdict already
    if not (compare_phases(report_input.sides) and compare_lines(report_input.sides)):
        brief = (*_phase_bars(sides[0], note=False), top_lines(sides[0], _BRIEF_ROWS))
    return Section("lines", TITLE, tuple(blocks), brief=brief)


def top_lines(side: ReportSide, count: int, *, categories: bool = True) -> Table:
    """The lines with most time, in short."""
    fields = (_LINE, _TIME, _SHARE, *((_CATEGORIES,) if categories else ()))
    return make_table("Lines with most of the training thread's time", fields, side.detailed.lines[:count])


def _phase_bars(side: ReportSide, *, note: bool = True) -> list[Block]:
    phases = side.detailed.phases
    if not phases:
        return []
    segments = tuple(
        Segment(PHASES[phase.name][0], phase.seconds_per_step, percent(phase.share), PHASES[phase.name][1])
        for phase in phases
        if phase.name in PHASES
    )
    total = sum(phase.seconds_per_step for phase in phases)
    locations = "; ".join(filter(None, map(_location, phases))) if note else ""
    bar = Bar(side.label, segments, phrase(total, "s"))
    text = f"Mostly at: {locations}." if locations else ""
    return [StackedBars("The parts of a step", (bar,), share=True, note=text)]


def _location(phase: Phase) -> str:
    if phase.site is None:
        return ""
    return f"{phase.name} {short_site(phase.site)}" + (f" ({phase.calls})" if phase.calls else "")


def _table(side: ReportSide) -> Table:
    lines = side.detailed.lines
    remaining = lines[_MAX_ROWS:]
    note = "95% intervals below the shares, from the number of stack samples."
    if (samples := sum(line.samples for line in lines)) < MIN_SAMPLES:
        note = f"Only {samples} stack samples ({MIN_SAMPLES} needed for more than a hint). {note}"
    if remaining:
        note += f" {len(remaining)} more lines share {percent(sum(line.share for line in remaining))} of the step."
    caption = f"{side.label}: the training thread's time by the innermost line of the program's own code"
    return make_table(caption, _FIELDS, lines[:_MAX_ROWS], note)


def compare_phases(sides: tuple[ReportSide, ...]) -> tuple[Table, ...]:
    """The parts of a step of all sides in seconds; nothing unless the parts of every side are known."""
    seconds = [{phase.name: phase.seconds_per_step for phase in side.detailed.phases} for side in sides]
    if len(sides) < 2 or not all(seconds):
        return ()
    names = [
        name
        for name in dict.fromkeys(name for phases in seconds for name in phases)
        if any(phases.get(name) for phases in seconds)
    ]

    def field(side: ReportSide, phases: dict[str, float]) -> Field[str]:
        def cell(name: str) -> Cell:
            return seconds_cell(phases[name]) if phases.get(name) else Cell("none", sort=0.0)

        return Field(side.label, cell, number=True, tone=side.tone)

    fields = [Field[str]("Part", lambda name: Cell(label(name))), *map(field, sides, seconds)]
    return (make_table(f"The parts of a step{_source_note(sides)}", fields, names),)


def compare_lines(sides: tuple[ReportSide, ...]) -> tuple[Table, ...]:
    """The lines with most time of each side: two sides beside each other, more of them below each other.

    Lines are not matched: an edited program has other numbers for the same lines.
    """
    if len(sides) < 2 or not all(side.detailed.phases and side.detailed.lines for side in sides):
        return ()
    caption = f"The lines with most time{_source_note(sides)}"
    if len(sides) == 2:
        return (_two_sides(sides, caption),)
    fields = (
        Field[_SideLine]("Side", lambda row: Cell(row[0].label)),
        Field[_SideLine]("Line", lambda row: site_cell(row[1].site)),
        Field[_SideLine]("Time per step", lambda row: seconds_cell(row[1].seconds_per_step), number=True),
        Field[_SideLine]("Share", lambda row: share_cell(row[1].share), number=True, bar=True),
    )
    rows = [(side, line) for side in sides for line in side.detailed.lines[:_COMPARED_ROWS]]
    return (make_table(caption, fields, rows),)


def _two_sides(sides: tuple[ReportSide, ...], caption: str) -> Table:
    """A row per rank: the line of each side that takes most time, that takes second most, ..."""

    def line_field(index: int, side: ReportSide) -> Field[_Rank]:
        def cell(row: _Rank) -> Cell:
            line = row[index]
            if line is None:
                return Cell(NOTHING)
            # two columns of locations in half a page: without folders
            return replace(site_cell(line.site), text=f"{PurePath(line.site.file).name}:{line.site.line}")

        return Field(f"{side.label}: line", cell)

    def time_field(index: int, side: ReportSide) -> Field[_Rank]:
        def cell(row: _Rank) -> Cell:
            line = row[index]
            if line is None:
                return Cell(NOTHING)
            return replace(seconds_cell(line.seconds_per_step), note=percent(line.share))

        return Field(f"{side.label}: per step", cell, number=True, tone=side.tone)

    fields = [make(index, side) for index, side in enumerate(sides) for make in (line_field, time_field)]
    rows = zip_longest(*(side.detailed.lines[:_COMPARED_ROWS] for side in sides))
    note = "Each side in the order of its own times, with their shares of its step."
    return make_table(caption, fields, rows, note)


def _source_note(sides: tuple[ReportSide, ...]) -> str:
    notes = {side.source_note for side in sides}
    return notes.pop() if len(notes) == 1 else ""


PLUGIN = SectionPlugin("lines", TITLE, 32, build)
