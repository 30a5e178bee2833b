"""The timeline of each side, for Perfetto: a part of it is in the page, all of it comes with `export`."""

from __future__ import annotations

from profiler.report.blocks import Block, NotMeasured, Section, TraceBlock
from profiler.report.build import SectionPlugin
from profiler.report.model import NO_BREAKDOWN_PASS, ReportInput, ReportSide
from profiler.report.text import describe

TITLE = "Timeline"
_BUTTON = (
    "This page holds {window}, and sends nothing by itself. When you choose the button, your browser loads the page "
    "ui.perfetto.dev from the network and hands the trace to it in a tab of its own, where it stays: Perfetto works in "
    "the browser and uploads nothing by itself. It may ask first whether you trust the page that the trace comes from."
)
_EXPORT = (
    "python -m profiler export RUN writes the whole timeline as a file, to be opened with the button "
    "'Open trace file' of ui.perfetto.dev."
)
_COMMAND = "python -m profiler export RUN writes it"


def build(report_input: ReportInput) -> Section | None:
    """A button for each side whose detailed run has a timeline; nothing for a run whose timeline was not asked for."""
    if report_input.analysis is not None and report_input.analysis.timeline is None:
        return None
    return Section("timeline", TITLE, tuple(map(_block, report_input.sides)))


def _block(side: ReportSide) -> Block:
    timeline = side.detailed.timeline
    if timeline is not None and timeline.data:
        caption = f"{side.label}: {timeline.window}"
        return TraceBlock(caption, caption, timeline.data, _BUTTON.format(window=timeline.window), _EXPORT)
    if side.detail is None:
        reason = NO_BREAKDOWN_PASS
    else:
        why = "none was put into this report" if timeline is None else describe(timeline.reason)
        reason = f"{why}; {_COMMAND}"
    return NotMeasured(f"timeline of {side.label}", reason)


PLUGIN = SectionPlugin("timeline", TITLE, 85, build)
