"""The timeline of each side, for Perfetto: a stretch of it lies in the page, all of it comes by `export`."""

from __future__ import annotations

from profiler.analyse.model import Comparison
from profiler.report.blocks import Block, NotMeasured, Section, Trace
from profiler.report.build import SectionPlugin
from profiler.report.subject import Subject, View, views
from profiler.report.text import describe

TITLE = "Timeline"
_CLICK = (
    "This page holds {window}, and sends nothing by itself. When you choose the button, your browser loads the page "
    "ui.perfetto.dev from the network and hands the trace to it in a tab of its own, where it stays: Perfetto works in "
    "the browser and uploads nothing by itself. It may ask first whether you trust the page that the trace comes from."
)
_EXPORT = (
    "python -m profiler export RUN writes the whole timeline as a file, to be opened with the button "
    "'Open trace file' of ui.perfetto.dev."
)
_WRITES = "python -m profiler export RUN writes it"


def build(subject: Subject) -> Section | None:
    """A button for each side whose detailed run has a timeline; nothing where none was asked for, as in a terminal."""
    if not isinstance(subject, Comparison) and subject.timeline is None:
        return None
    return Section("timeline", TITLE, tuple(map(_block, views(subject))))


def _block(view: View) -> Block:
    timeline = view.any_detail.timeline
    if timeline is None or not timeline.data:
        return NotMeasured(f"timeline of {view.label}", _reason(view))
    caption = f"{view.label}: {timeline.window}"
    return Trace(caption, caption, timeline.data, _CLICK.format(window=timeline.window), _EXPORT)


def _reason(view: View) -> str:
    if view.detail is None:
        return "no breakdown pass was made of this side"
    if view.detail.timeline is None:
        return f"none was put into this report; {_WRITES}"
    return f"{describe(view.detail.timeline.reason)}; {_WRITES}"


PLUGIN = SectionPlugin("timeline", TITLE, 85, build)
