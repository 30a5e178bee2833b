"""What left the device idle: idle time charged to what the host was doing, with file and line."""

from __future__ import annotations

from profiler.analyse.model import HostState, IdleBlame, Topic
from profiler.report.blocks import Bar, Block, Cell, Column, NotMeasured, Section, Segment, StackedBars, Table
from profiler.report.build import SectionPlugin
from profiler.report.names import categories, tone
from profiler.report.quantities import digits, percent, phrase, seconds_cell, share_cell, site_cell
from profiler.report.subject import Subject, View, of_pass, views, without_queue
from profiler.report.text import host_state

TITLE = "What left the device idle"
_COLUMNS = (
    Column("The host was"),
    Column("At"),
    Column("Share of wall", number=True),
    Column("Idle a step", number=True),
    Column("Gaps a step", number=True),
)
_MOST_ROWS = 12
_BRIEF_ROWS = 3


def build(subject: Subject) -> Section | None:
    """The device's own breakdown, then the blame of each side; nothing of a run that has no queue."""
    sides = views(subject)
    if without_queue(subject) and not sides[0].any_detail.idle:
        return None
    bars = _device_bars(sides)
    blocks: list[Block] = [StackedBars("Device time of a step, as shares", bars, share=True)] if bars else []
    for view in sides:
        if view.any_detail.idle:
            blocks.append(_table(view, _MOST_ROWS))
        else:
            blocks.append(NotMeasured(f"device idle time of {view.label}", _reason(view)))
    return Section("idle", TITLE, tuple(blocks), brief=blame_summary(sides[0]))


def blame_summary(view: View) -> tuple[Table, ...]:
    """The largest causes of device idle time with their lines; nothing where none is known."""
    # recording's own share stands in the full table: the first screen is about the program
    blamed = [row for row in view.any_detail.idle if row.state is not HostState.RECORDING][:_BRIEF_ROWS]
    rows = tuple((Cell(host_state(blame)), site_cell(blame.site), share_cell(blame.share_of_wall)) for blame in blamed)
    own = sum(row.share_of_wall for row in view.any_detail.idle if row.state is HostState.RECORDING)
    note = f"The recorder's own {percent(own)} left out." if own else ""
    caption = f"{view.label}: largest causes of device idle time{of_pass(view)}"
    return (Table(caption, (*_COLUMNS[:2], Column("Share of wall", number=True)), rows, note),) if rows else ()


def _reason(view: View) -> str:
    if view.detail is None:
        return "no breakdown pass was made of this side"
    return view.why(Topic.IDLE_BLAME, Topic.DEVICE_BREAKDOWN, otherwise="no gap between activities was recorded")


def _device_bars(sides: tuple[View, ...]) -> tuple[Bar, ...]:
    bars = []
    for view in sides:
        measured = view.any_detail.device_breakdown
        known = {name: measured[name].value for name in categories(sides, device=True) if name in measured}
        total = sum(value for value in known.values() if value)
        if total:
            segments = (
                Segment(name, value, percent(value / total), tone(name)) for name, value in known.items() if value
            )
            bars.append(Bar(view.label, tuple(segments), phrase(total, "s")))
    return tuple(bars)


def _table(view: View, most: int) -> Table:
    blamed = view.any_detail.idle
    rows = tuple(_row(blame) for blame in blamed[:most])
    rest = blamed[most:]
    note = ""
    if rest:
        note = f"{len(rest)} more lines share {percent(sum(blame.share_of_wall for blame in rest))} of the wall time."
    total = sum(blame.share_of_wall for blame in blamed)
    return Table(f"{view.label}: device idle {percent(total)} of the wall time{of_pass(view)}", _COLUMNS, rows, note)


def _row(blame: IdleBlame) -> tuple[Cell, ...]:
    return (
        Cell(host_state(blame), note=blame.category),
        site_cell(blame.site),
        share_cell(blame.share_of_wall),
        seconds_cell(blame.seconds_per_step),
        Cell(digits(blame.gaps_per_step), sort=blame.gaps_per_step),
    )


PLUGIN = SectionPlugin("idle", TITLE, 60, build)
