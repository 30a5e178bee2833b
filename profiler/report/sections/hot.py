"""Hot lines: what each line of the user's code asked of the device, and what that cost."""

from __future__ import annotations

from dataclasses import replace

from profiler.analyse.model import CallSite, Topic
from profiler.report.blocks import Block, Cell, Column, NotMeasured, Section, Table
from profiler.report.build import SectionPlugin
from profiler.report.quantities import digits, quantity, seconds_cell, site_cell
from profiler.report.subject import Subject, View, views, without_queue

TITLE = "Hot lines"
_COLUMNS = (
    Column("Line"),
    Column("Asks for"),
    Column("Calls a step", number=True),
    Column("Time a step", number=True),
    Column("Blocked a step", number=True),
    Column("Bytes a step", number=True),
)
_MOST_ROWS = 15
_WOULD_SYNC = "would_sync"


def build(subject: Subject) -> Section | None:
    """A table of lines for each side; nothing of a run without a queue whose lines asked for nothing."""
    if without_queue(subject) and not views(subject)[0].any_detail.call_sites:
        return None
    blocks: list[Block] = []
    for view in views(subject):
        if view.any_detail.call_sites:
            blocks.append(_table(view))
        else:
            reason = "no breakdown pass was made of this side"
            if view.detail is not None:
                reason = view.why(Topic.CALL_SITES, otherwise="no call with a line of the program's own was recorded")
            blocks.append(NotMeasured(f"hot lines of {view.label}", reason))
    return Section("hot", TITLE, tuple(blocks))


def _table(view: View) -> Table:
    hot = view.any_detail.call_sites
    note = f"{len(hot) - _MOST_ROWS} more lines are left out." if len(hot) > _MOST_ROWS else ""
    if all(one.kind == _WOULD_SYNC for one in hot):
        columns, rows = _COLUMNS[:4], tuple(_would_sync(one) for one in hot[:_MOST_ROWS])
        return Table(f"{view.label}: calls that would sync on a GPU, by line", columns, rows, note)
    return Table(f"{view.label}: calls toward the device by line", _COLUMNS, tuple(map(_row, hot[:_MOST_ROWS])), note)


def _would_sync(hot: CallSite) -> tuple[Cell, ...]:
    site, asks, *numbers = _row(hot)[:4]
    return (site, replace(asks, note=""), *numbers)


def _row(hot: CallSite) -> tuple[Cell, ...]:
    size, unit = quantity(hot.bytes_per_step, "bytes")
    return (
        site_cell(hot.site),
        Cell(hot.operation, note=hot.kind.replace("_", " ")) if hot.operation else Cell(hot.kind),
        Cell(digits(hot.calls_per_step), sort=hot.calls_per_step),
        seconds_cell(hot.seconds_per_step),
        seconds_cell(hot.blocked_per_step),
        Cell(size, unit, sort=hot.bytes_per_step),
    )


PLUGIN = SectionPlugin("hot", TITLE, 70, build)
