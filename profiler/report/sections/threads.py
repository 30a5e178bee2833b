"""What each thread was doing while it was sampled: a sentence per thread, with the numbers behind it."""

from __future__ import annotations

from profiler.analyse.model import LineCost, ThreadActivity
from profiler.report.blocks import Block, Cell, Items, Section, Table
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput
from profiler.report.table import Field, make_table, missing_cell, share_cell, short_site
from profiler.report.text import THREAD_STATES

TITLE = "What each thread was doing"
_MAX_STATES = 4
_SMALLEST_SHARE = 0.02
"""States that a sentence mentions after the first one take at least this share."""
_NOTE = (
    "By stack samples over the whole recording, start and end included; with each share its 95% interval. "
    "On CPU by the thread's own clock; GIL by samples of its holder alone."
)


def build(report_input: ReportInput) -> Section | None:
    """A sentence per thread and their table; nothing where no stacks were sampled, and for comparisons."""
    analysis = report_input.analysis
    if analysis is None or not analysis.threads:
        return None
    blocks: tuple[Block, ...] = (Items(tuple(map(sentence, analysis.threads))),)
    if any(thread.lines for thread in analysis.threads):
        blocks = (*blocks, _lines_table(analysis.threads))
    brief = blocks if analysis.info.state == "attached" else ()
    table = make_table("Shares of the sampled time", _FIELDS, analysis.threads, _NOTE)
    return Section("doing", TITLE, (*blocks, table), brief=brief)


def sentence(thread: ThreadActivity) -> str:
    """`rank 0 (1234): waiting for data 62% of the time, 55% at train.py:44: for batch in loader: [in ...]; else ...`"""
    name = f"{thread.process} ({thread.pid})" + (f", thread {thread.thread}" if thread.thread else "")
    text = f"{name}: {THREAD_STATES[thread.state]} {_rounded(thread.share)} of the time"
    if thread.site:
        at_site = _rounded(thread.share_at_site)
        text += f"{'' if at_site == _rounded(thread.share) else f', {at_site}'} at {short_site(thread.site)}"
        text += f": {thread.source_line}" if thread.source_line else ""
    text += f" [in {thread.calls}]" if thread.calls else ""
    further = [(state, share) for state, share in thread.states[1:_MAX_STATES] if share >= _SMALLEST_SHARE]
    if further:
        text += "; else " + ", ".join(f"{THREAD_STATES[state]} {_rounded(share)}" for state, share in further)
    return text


def _rounded(share: float) -> str:
    return f"{100 * share:.0f}%"


def _share(row: ThreadActivity | LineCost) -> Cell:
    return share_cell(row.share, note=f"{_rounded(row.low)} to {_rounded(row.high)}")


def _name(thread: ThreadActivity) -> Cell:
    return Cell(f"{thread.process} {thread.pid}" + (f", {thread.thread}" if thread.thread else ""))


def _optional_share(value: float | None, reason: str) -> Cell:
    return missing_cell(reason) if value is None else share_cell(value)


_FIELDS = (
    Field[ThreadActivity]("Process, thread", _name),
    Field[ThreadActivity]("Mostly", lambda thread: Cell(THREAD_STATES[thread.state])),
    Field[ThreadActivity]("Share", _share, number=True, bar=True),
    Field[ThreadActivity](
        "On CPU", lambda thread: _optional_share(thread.on_cpu, "the thread's clock was not read"), number=True
    ),
    Field[ThreadActivity](
        "GIL", lambda thread: _optional_share(thread.gil, "no window of the GIL's holder was recorded"), number=True
    ),
    Field[ThreadActivity](
        "Samples", lambda thread: Cell(f"{thread.samples:,}", sort=float(thread.samples)), number=True
    ),
)


_ThreadLine = tuple[ThreadActivity, LineCost]


def _main_state(line: LineCost) -> Cell:
    state = max(line.categories, key=lambda name: (line.categories[name], name), default="")
    return Cell(THREAD_STATES.get(state, state))


def _lines_table(threads: tuple[ThreadActivity, ...]) -> Table:
    """The lines of all threads; a column for the thread where there are several."""
    fields = [
        Field[_ThreadLine]("Line", lambda row: Cell(short_site(row[1].site))),
        Field[_ThreadLine]("Share", lambda row: _share(row[1]), number=True, bar=True),
        Field[_ThreadLine]("Mostly", lambda row: _main_state(row[1])),
        Field[_ThreadLine]("In", lambda row: Cell(row[1].calls or "the line itself")),
    ]
    if len(threads) > 1:
        fields.append(Field[_ThreadLine]("Process, thread", lambda row: _name(row[0])))
    rows = [(thread, line) for thread in threads for line in thread.lines]
    return make_table("Lines with the most of each thread's time", fields, rows)


PLUGIN = SectionPlugin("doing", TITLE, 28, build)
