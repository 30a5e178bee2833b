"""What left the device idle: its idle time by what the host was doing, with file and line."""

from __future__ import annotations

from profiler.analyse.model import HostState, IdleBlame, Topic
from profiler.report.blocks import Block, Cell, NotMeasured, Section, Table
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput, ReportSide
from profiler.report.sections.breakdown import share_bars
from profiler.report.table import Field, count_cell, make_table, percent, seconds_cell, share_cell, site_cell
from profiler.report.text import host_state

TITLE = "What left the device idle"
_SITE = Field[IdleBlame]("At", lambda blame: site_cell(blame.site))
_SHARE = Field[IdleBlame]("Share of wall", lambda blame: share_cell(blame.share_of_wall), number=True, bar=True)
_FIELDS = (
    Field[IdleBlame]("The host was", lambda blame: Cell(host_state(blame), note=blame.category)),
    _SITE,
    _SHARE,
    Field[IdleBlame]("Idle per step", lambda blame: seconds_cell(blame.seconds_per_step), number=True),
    Field[IdleBlame]("Gaps per step", lambda blame: count_cell(blame.gaps_per_step), number=True),
)
_BRIEF_FIELDS = (Field[IdleBlame]("The host was", lambda blame: Cell(host_state(blame))), _SITE, _SHARE)
_MAX_ROWS = 12
_BRIEF_ROWS = 3


def build(report_input: ReportInput) -> Section | None:
    """The device's own breakdown, then the causes on each side; nothing for a run that has no queue."""
    sides = report_input.sides
    if report_input.has_no_queue and not sides[0].detailed.idle:
        return None
    blocks: list[Block] = list(share_bars(sides, "Device time of a step, as shares", device=True))
    for side in sides:
        if side.detailed.idle:
            blocks.append(_table(side))
        else:
            otherwise = "no gap between activities was recorded"
            reason = side.why_missing(Topic.IDLE_BLAME, Topic.DEVICE_BREAKDOWN, otherwise=otherwise)
            blocks.append(NotMeasured(f"device idle time of {side.label}", reason))
    return Section("idle", TITLE, tuple(blocks), brief=idle_summary(sides[0]))


def idle_summary(side: ReportSide) -> tuple[Table, ...]:
    """The largest causes of device idle time with their lines; nothing where none is known."""
    # the share of recording is in the full table: the first screen is about the program
    causes = [row for row in side.detailed.idle if row.state is not HostState.RECORDING][:_BRIEF_ROWS]
    if not causes:
        return ()
    recording = sum(row.share_of_wall for row in side.detailed.idle if row.state is HostState.RECORDING)
    note = f"The recorder's own {percent(recording)} left out." if recording else ""
    caption = f"{side.label}: largest causes of device idle time{side.source_note}"
    return (make_table(caption, _BRIEF_FIELDS, causes, note),)


def _table(side: ReportSide) -> Table:
    causes = side.detailed.idle
    remaining = causes[_MAX_ROWS:]
    share = percent(sum(blame.share_of_wall for blame in remaining))
    note = f"{len(remaining)} more lines share {share} of the wall time." if remaining else ""
    total = percent(sum(blame.share_of_wall for blame in causes))
    caption = f"{side.label}: device idle {total} of the wall time{side.source_note}"
    return make_table(caption, _FIELDS, causes[:_MAX_ROWS], note)


PLUGIN = SectionPlugin("idle", TITLE, 60, build)
