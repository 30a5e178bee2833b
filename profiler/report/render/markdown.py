"""Renders a Report as GitHub-flavoured Markdown; bars and curves become tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from profiler.core.terminal import plain
from profiler.core.units import count
from profiler.report import blocks as b
from profiler.report.render.drawing import bar, hottest, line_rows, waterfall_layout, waterfall_track, whole_percent
from profiler.report.render.figures import text_rows
from profiler.report.table import phrase

_BAR = 20
"""Characters of a full bar."""


def render(report: b.Report) -> str:
    """Return the report as one Markdown text."""
    parts = [f"# {escape(report.title)}", escape(report.subtitle)]
    if report.first is not None:
        parts = [f"# {escape(report.first.headline.text)}", *first_screen(report.first)]
    for section in report.sections:
        parts.append(f"## {escape(section.title)}")
        parts.extend(part for block in section.blocks if (part := draw(block, 3)))
    return "\n\n".join(filter(None, parts)) + "\n"


def escape(text: str) -> str:
    """Return text without markup, HTML, links or the end of a table's cell."""
    safe = plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    safe = re.sub(r"([\\`*_\[\]|~$#!])", r"\\\1", safe)
    # a bare address would become a link
    return re.sub(r"(?i)\b(https?|ftp|www)([:.])", r"\1&#8203;\2", safe)


def draw(block: b.Block, level: int) -> str:
    """Return one block."""
    drawing: Callable[[Any, int], str] = _DRAWINGS[type(block)]
    return drawing(block, level)


def first_screen(first: b.FirstScreen) -> Iterable[str]:
    """Yield all of the first screen below its headline."""
    yield escape(first.context_line())
    yield escape(" ".join(first.why))
    yield "\n".join(f"- {escape(chip.detail or chip.text)}" for chip in first.chips)
    if first.picture is not None:
        yield draw(first.picture, 2)
    yield _places(first.places_block(), 2)
    if first.actions:
        yield f"## {escape(first.actions_title)}"
        yield "\n".join(f"{number}. {_action(action)}" for number, action in enumerate(first.actions, 1))


def _places(block: b.Places, level: int) -> str:
    parts = [f"{'#' * level} {escape(block.title)}"] if block.title else []
    if block.places:
        rows = [(place.change or whole_percent(place.share), place.location, place.source) for place in block.places]
        parts.append(
            _grid(("Change" if block.places[0].change else "Share", "Line", "Source"), rows, (True, False, False))
        )
    for place in block.places:
        if place.diff:
            parts.append(_items(b.Items((f"at {place.path}",), code="\n".join(place.diff)), level + 1))
    return "\n\n".join(filter(None, (*parts, escape(block.note))))


def _action(action: b.Action) -> str:
    details = action.details()
    text = f"**{escape(action.title)}**{f': {escape(details)}' if details else ''}"
    code = "".join(f"\n\n       {plain(line)}" for line in (*action.code.splitlines(), action.command) if line)
    return text + code + (f"\n\n   {escape(action.note)}" if action.note else "")


def _strip(block: b.PhaseStrip, _: int) -> str:
    whole, figures = block.width(), []
    for strip in block.strips():
        rows = [(each.label, each.text, bar(each.value / whole, _BAR)) for each in strip.segments]
        if strip.changed is not None:
            rows.append((strip.change, "", bar(strip.changed / whole, _BAR)))
        figures.append(_figure(strip.label, _grid(("Part", "", ""), rows, (False, True, False))))
    return "\n\n".join(figures)


def _callout(block: b.Callout, _: int) -> str:
    label = f"**{escape(block.label)}:** " if block.label else ""
    bold = "**" if block.tone == "verdict" else ""
    return f"> {label}{bold}{escape(block.text)}{bold}"


def _items(block: b.Items, level: int) -> str:
    title = f"{'#' * level} {escape(block.title)}\n\n" if block.title else ""
    items = "\n".join(f"- {escape(item)}" for item in block.items)
    # an indented block of the last item: no text can end it
    code = "".join(f"\n      {plain(line)}" for line in block.code.splitlines())
    return title + items + (f"\n{code}" if code else "")


def _table(block: b.Table, _: int) -> str:
    marks = block.footnotes()
    rows = [[_cell(cell, marks) for cell in row] for row in block.rows]
    grid = _grid([c.title for c in block.columns], rows, [c.number for c in block.columns])
    footnotes = [f"\\[{mark}\\] not measured: {escape(reason)}" for reason, mark in marks.items()]
    return _figure(block.caption, "\n\n".join([grid, *footnotes]), block.note)


def _cell(cell: b.Cell, marks: dict[str, str]) -> str:
    note, source = cell.small_print(), cell.source
    return cell.one_line(marks) + (f" ({note})" if note else "") + (f": {source}" if source else "")


def _figure(caption: str, content: str, note: str = "") -> str:
    return "\n\n".join(filter(None, (f"**{escape(caption)}**", content, escape(note))))


def _grid(head: Iterable[str], rows: Iterable[Iterable[str]], numbers: Iterable[bool]) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    rule = ["---:" if number else "---" for number in numbers]
    return "\n".join([line(map(escape, head)), line(rule), *(line(map(escape, row)) for row in rows)])


def _bars(block: b.StackedBars, _: int) -> str:
    head, rows = ["Part"], {label: [label] for label, _tone in block.legend()}
    for item in block.bars:
        head += [f"{item.label}, {item.text}", ""]
        segments = {segment.label: segment for segment in item.segments}
        for label, row in rows.items():
            segment = segments.get(label)
            row += [segment.text, bar(segment.value / block.scale(item), _BAR)] if segment else ["", ""]
    return _figure(block.caption, _grid(head, rows.values(), [False, *([True, False] * len(block.bars))]), block.note)


def _lines(block: b.Lines, _: int) -> str:
    grid = _grid(("", "", f"over {block.x_label}", "Range"), line_rows(block), (False, False, False, True))
    return _figure(block.caption, grid, block.note)


def _intervals(block: b.IntervalChart, _: int) -> str:
    rows = [
        (
            row.label,
            row.text,
            "" if row.low is None or row.high is None else f"{count(row.low)} to {count(row.high)}",
            ", ".join(count(dot) for dot in row.dots),
        )
        for row in block.rows
    ]
    rows += [(level.label, level.text, "", "") for level in block.levels]
    grid = _grid(("", "Estimate", "Range", f"Observations, {block.x_label}"), rows, (False, True, True, False))
    return _figure(block.caption, grid)


def _waterfall(block: b.Waterfall, _: int) -> str:
    """Draw steps in the order in which they are taken, as bars of characters on one logarithmic axis."""
    rows = [
        (
            row.stair.label + (f" ({row.stair.note})" if row.stair.note else ""),
            row.stair.text,
            row.stair.small_print(),
            phrase(row.stair.end, block.unit) if row.stair.end is not None else "",
            waterfall_track(row, _BAR).rstrip().replace(" ", "\u2007"),
        )
        for row in waterfall_layout(block).rows
    ]
    reached = f"Reached: {block.stairs[0].label} × factors" if block.stairs else "Reached"
    grid = _grid(("", "Factor", "95% interval", reached, ""), rows, (False, True, True, True, False))
    return _figure(block.caption, grid, block.note)


def _flame(block: b.Flame, _: int) -> str:
    rows = [(own, frame.label, frame.where, frame.text) for frame, own in hottest(block)]
    grid = _grid(("Own share", "Frame", "At", "With callees"), rows, (True, False, False, True))
    return _figure(f"{block.caption}; the frames with most time of their own", grid)


def _group(block: b.Group, level: int) -> str:
    parts = []
    for title, inner in block.columns:
        parts.append(f"{'#' * level} {escape(title)}")
        parts.extend(draw(item, level + 1) for item in inner)
    return "\n\n".join(part for part in parts if part)


_DRAWINGS: dict[type, Callable[[Any, int], str]] = {
    b.Text: lambda block, _: escape(block.text),
    b.Callout: _callout,
    b.NotMeasured: lambda block, _: f"*{escape(block.what)}: not measured: {escape(block.reason)}*",
    b.Items: _items,
    b.Table: _table,
    b.StackedBars: _bars,
    b.PhaseStrip: _strip,
    b.Lines: _lines,
    b.IntervalChart: _intervals,
    b.Waterfall: _waterfall,
    b.Flame: _flame,
    b.SlopeChart: lambda block, level: _table(block.table(), level),
    b.TimelineChart: lambda block, _: _figure(
        block.caption, _grid(("Program", "Track", "Shares"), text_rows(block), (False,) * 3), block.note
    ),
    b.Places: _places,
    b.Group: _group,
}
