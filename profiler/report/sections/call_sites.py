"""Hot lines: what each line of the user's code asked of the device, and what that cost."""

from __future__ import annotations

from profiler.analyse.model import CallSite, Topic
from profiler.report.blocks import Block, Cell, NotMeasured, Section, Table
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput, ReportSide
from profiler.report.table import Field, count_cell, make_table, quantity, seconds_cell, site_cell

TITLE = "Device calls by line"
_WOULD_SYNC = "would_sync"
_MAX_ROWS = 15


def _operation(row: CallSite) -> Cell:
    if not row.operation:
        return Cell(row.kind)
    return Cell(row.operation, note="" if row.kind == _WOULD_SYNC else row.kind.replace("_", " "))


_FIELDS = (
    Field[CallSite]("Line", lambda row: site_cell(row.site)),
    Field[CallSite]("Operation", _operation),
    Field[CallSite]("Calls per step", lambda row: count_cell(row.calls_per_step), number=True),
    Field[CallSite]("Time per step", lambda row: seconds_cell(row.seconds_per_step), number=True),
    Field[CallSite]("Blocked per step", lambda row: seconds_cell(row.blocked_per_step), number=True),
    Field[CallSite](
        "Bytes per step", lambda row: Cell(*quantity(row.bytes_per_step, "bytes"), sort=row.bytes_per_step), number=True
    ),
)


def build(report_input: ReportInput) -> Section | None:
    """A table of lines per side; nothing for a run without a queue whose lines asked for nothing."""
    if report_input.has_no_queue and not report_input.sides[0].detailed.call_sites:
        return None
    blocks: list[Block] = []
    for side in report_input.sides:
        if side.detailed.call_sites:
            blocks.append(_table(side))
        else:
            otherwise = "no call with a line of the program's own was recorded"
            reason = side.why_missing(Topic.CALL_SITES, otherwise=otherwise)
            blocks.append(NotMeasured(f"device calls by line of {side.label}", reason))
    return Section("hot", TITLE, tuple(blocks))


def _table(side: ReportSide) -> Table:
    rows = side.detailed.call_sites
    note = f"{len(rows) - _MAX_ROWS} more lines are left out." if len(rows) > _MAX_ROWS else ""
    if all(row.kind == _WOULD_SYNC for row in rows):
        return make_table(f"{side.label}: calls that would sync on a GPU, by line", _FIELDS[:4], rows[:_MAX_ROWS], note)
    return make_table(f"{side.label}: calls toward the device by line", _FIELDS, rows[:_MAX_ROWS], note)


PLUGIN = SectionPlugin("hot", TITLE, 70, build)
