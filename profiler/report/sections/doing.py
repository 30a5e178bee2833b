"""What each thread was doing while it was sampled: one line a thread, with what stands behind it."""

from __future__ import annotations

from profiler.analyse.model import Comparison, LineCost, ThreadActivity
from profiler.report.blocks import Block, Cell, Column, Items, Section, Table
from profiler.report.build import SectionPlugin
from profiler.report.quantities import share_cell, short_site
from profiler.report.subject import Subject
from profiler.report.text import THREAD_STATES

TITLE = "What each thread was doing"
_PARTS = 4
"""Answers that are named of a thread."""
_NAMED = 0.02
"""Share below which an answer is not named."""
_NOTE = (
    "By stack samples over the whole recording, start and end included; with each share its 95% interval. "
    "On CPU by the thread's own clock; GIL by samples of its holder alone."
)


def build(subject: Subject) -> Section | None:
    """A sentence a thread and their table; nothing where no stacks were sampled, nor of a comparison."""
    if isinstance(subject, Comparison) or not subject.threads:
        return None
    said: tuple[Block, ...] = (Items(tuple(map(sentence, subject.threads))),)
    if any(doing.lines for doing in subject.threads):
        said = (*said, _lines(subject.threads))
    brief = said if subject.info.state == "attached" else ()
    return Section("doing", TITLE, (*said, _table(subject.threads)), brief=brief)


def sentence(doing: ThreadActivity) -> str:
    """`rank 0 (1234): waiting for data 62% of the time, 55% at train.py:44: for batch in loader: [in ...]; else ...`"""
    who = f"{doing.process} ({doing.pid})" + (f", thread {doing.thread}" if doing.thread else "")
    own = doing.share_at_site
    part = "" if _rounded(own) == _rounded(doing.share) else f", {_rounded(own)}"
    where = f"{part} at {short_site(doing.site)}" if doing.site else ""
    text = f": {doing.source_line}" if doing.source_line and where else ""
    calls = f" [in {doing.calls}]" if doing.calls else ""
    others = ", ".join(
        f"{THREAD_STATES[state]} {_rounded(share)}" for state, share in doing.states[1:_PARTS] if share >= _NAMED
    )
    rest = f"; else {others}" if others else ""
    return f"{who}: {THREAD_STATES[doing.state]} {_rounded(doing.share)} of the time{where}{text}{calls}{rest}"


def _rounded(share: float) -> str:
    return f"{100 * share:.0f}%"


def _lines(doings: tuple[ThreadActivity, ...]) -> Table:
    several = len(doings) > 1
    columns = (
        Column("Line"),
        Column("Share", number=True),
        Column("Mostly"),
        Column("In"),
        *((Column("Process, thread"),) if several else ()),
    )
    rows = [(*_line(line), *((Cell(_thread(doing)),) if several else ())) for doing in doings for line in doing.lines]
    return Table("Lines with the most of each thread's time", columns, tuple(rows))


def _line(line: LineCost) -> tuple[Cell, ...]:
    share = share_cell(line.share)
    mostly = max(line.categories, key=lambda answer: (line.categories[answer], answer), default="")
    interval = f"{_rounded(line.low)} to {_rounded(line.high)}"
    return (
        Cell(short_site(line.site)),
        Cell(share.text, share.unit, share.sort, note=interval),
        Cell(THREAD_STATES.get(mostly, mostly)),
        Cell(line.calls or "the line itself"),
    )


def _thread(doing: ThreadActivity) -> str:
    return f"{doing.process} {doing.pid}" + (f", {doing.thread}" if doing.thread else "")


def _table(doings: tuple[ThreadActivity, ...]) -> Table:
    columns = (
        Column("Process, thread"),
        Column("Mostly"),
        Column("Share", number=True),
        Column("On CPU", number=True),
        Column("GIL", number=True),
        Column("Samples", number=True),
    )
    return Table("Shares of the sampled time", columns, tuple(map(_row, doings)), _NOTE)


def _row(doing: ThreadActivity) -> tuple[Cell, ...]:
    share = share_cell(doing.share)
    return (
        Cell(_thread(doing)),
        Cell(THREAD_STATES[doing.state]),
        Cell(share.text, share.unit, share.sort, note=f"{_rounded(doing.low)} to {_rounded(doing.high)}"),
        _share(doing.on_cpu, "the thread's clock was not read"),
        _share(doing.gil, "no window of the GIL's holder was recorded"),
        Cell(f"{doing.samples:,}", sort=float(doing.samples)),
    )


def _share(value: float | None, reason: str) -> Cell:
    return Cell("", missing=reason) if value is None else share_cell(value)


PLUGIN = SectionPlugin("doing", TITLE, 28, build)
