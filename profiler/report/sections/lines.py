"""Every millisecond by line: the parts of a step, and the lines of the user's own code that the time went to."""

from __future__ import annotations

from profiler.analyse.model import MIN_SAMPLES, LineCost, Phase
from profiler.report.blocks import Bar, Block, Cell, Column, Section, Segment, StackedBars, Table, Text
from profiler.report.build import SectionPlugin
from profiler.report.quantities import percent, phrase, seconds_cell, share_cell, short_site, site_cell
from profiler.report.sections._parts import lines_table, parts_table
from profiler.report.subject import Subject, View, views
from profiler.report.text import step_text

TITLE = "Every millisecond by line"
_COLUMNS = (
    Column("Line"),
    Column("In"),
    Column("Time a step", number=True),
    Column("Share", number=True),
    Column("What it is"),
)
_MOST_ROWS = 25
_BRIEF_ROWS = 6
_WORTH = 0.1
"""Share of a line below which one of its categories is not named."""
NAMES = {
    "data": ("data", "c1"),
    "forward": ("forward", "c6"),
    "backward": ("backward", "c3"),
    "optimizer": ("optimizer", "c5"),
    "after the optimizer": ("after step", "c9"),
    "elsewhere": ("elsewhere", "idle"),
}
"""Phase -> what fits beside a bar in a terminal, and its tone."""


def build(subject: Subject) -> Section | None:
    """Nothing where no stacks were sampled: the flame graph says why."""
    sides = [view for view in views(subject) if view.any_detail.lines]
    if not sides:
        return None
    blocks: list[Block] = []
    for view in sides:
        if view.any_detail.step:
            blocks.append(Text(f"A step is: {step_text(view.any_detail.step)}."))
        blocks += _phases(view)
        blocks.append(_table(view, _MOST_ROWS))
    return Section("lines", TITLE, tuple(blocks), brief=_brief(views(subject)))


def _brief(sides: tuple[View, ...]) -> tuple[Block, ...]:
    """Nothing of sides whose parts and lines stand beside each other below the verdict."""
    if parts_table(sides) and lines_table(sides):
        return ()
    first = next(view for view in sides if view.any_detail.lines)
    return (*_phases(first, note=False), top_lines(first, _BRIEF_ROWS))


def top_lines(view: View, most: int) -> Table:
    """The lines with most time, in short."""
    rows = tuple((row[0], *row[2:]) for row in _table(view, most).rows)
    return Table("Lines with most of the training thread's time", (_COLUMNS[0], *_COLUMNS[2:]), rows)


def _phases(view: View, *, note: bool = True) -> list[Block]:
    parts = view.any_detail.phases
    if not parts:
        return []
    segments = tuple(
        Segment(NAMES[part.name][0], part.seconds_per_step, percent(part.share), NAMES[part.name][1])
        for part in parts
        if part.name in NAMES
    )
    total = sum(part.seconds_per_step for part in parts)
    said = "; ".join(_where(part) for part in parts if part.site)
    told = f"Most of it lies at: {said}." if said and note else ""
    bar = Bar(view.label, segments, phrase(total, "s"))
    return [StackedBars("The parts of a step", (bar,), share=True, note=told)]


def _where(part: Phase) -> str:
    assert part.site is not None
    return f"{part.name} {short_site(part.site)}" + (f" ({part.calls})" if part.calls else "")


def _table(view: View, most: int) -> Table:
    lines = view.any_detail.lines
    rest = lines[most:]
    note = "95% intervals below the shares, from the number of stack samples."
    if (samples := sum(line.samples for line in lines)) < MIN_SAMPLES:
        note = f"Only {samples} stack samples ({MIN_SAMPLES} needed for more than a hint). {note}"
    if rest:
        note += f" {len(rest)} more lines share {percent(sum(line.share for line in rest))} of the step."
    caption = f"{view.label}: the training thread's time by the innermost line of the program's own code"
    return Table(caption, _COLUMNS, tuple(map(_row, lines[:most])), note)


def _row(line: LineCost) -> tuple[Cell, ...]:
    share = share_cell(line.share)
    span = f"{100 * line.low:.1f} to {100 * line.high:.1f}"
    return (
        site_cell(line.site),
        within(line),
        seconds_cell(line.seconds_per_step),
        Cell(share.text, share.unit, sort=share.sort, note=span),
        Cell(_mix(line)),
    )


def within(line: LineCost) -> Cell:
    """What a line calls: the function, with its module or class; in full in the title."""
    if not line.calls:
        return Cell("the line itself")
    return Cell(".".join(line.calls.replace("<locals>.", "").split(".")[-2:]), title=line.calls, code=True)


def _mix(line: LineCost) -> str:
    """The categories of a line, the largest first: `compute 80%, python 20%`."""
    total = sum(line.categories.values()) or 1.0
    parts = sorted(line.categories.items(), key=lambda item: -item[1])
    named = [(name, value / total) for name, value in parts if value / total >= _WORTH] or [
        (name, value / total) for name, value in parts[:1]
    ]
    if len(named) == 1:
        return named[0][0]
    return ", ".join(f"{name} {100 * share:.0f}%" for name, share in named)


PLUGIN = SectionPlugin("lines", TITLE, 32, build)
