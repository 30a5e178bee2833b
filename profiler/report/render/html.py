"""Renders a Report as one HTML file that needs no network, and no script to be read."""

from __future__ import annotations

import zlib
from base64 import b64encode
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from profiler.report.blocks import NOTHING, Frame, Intervals, Lines, Panel, Report, Table, absent_row
from profiler.report.quantities import plain
from profiler.report.render import figures, flame, narrow, waterfall

PAGE = Path(__file__).parent / "page"
TINTS = 6
"""Tints of a flame graph's frames."""
LEANS = 3
"""Steps of a difference's colour to either side of no change."""


def render(report: Report) -> str:
    """The page, complete; the same report gives the same bytes."""
    import jinja2
    from markupsafe import Markup

    names = (f"plot{number}" for number in count(1))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: plain(value) if type(value) is str else value,
    )
    environment.globals.update(
        kind_of=lambda block: type(block).__name__,
        draw_lines=lambda block: _panels(block, next(names), Markup),
        draw_intervals=lambda block: _intervals(block, next(names), Markup),
        fall_layout=waterfall.layout,
        flame_layout=flame.layout,
        flame_rows=flame.depth,
        flame_tint=flame_tint,
        base64=lambda data: Markup(b64encode(data).decode()),
        absent_row=absent_row,
        stacked=narrow.stacked,
        stack_layout=narrow.layout,
        share=narrow.share,
        briefs=narrow.briefs,
        nothing=NOTHING,
        unit_widths=unit_widths,
    )
    css, js = (Markup((PAGE / name).read_text(encoding="utf-8").strip()) for name in ("page.css", "page.js"))
    text: str = environment.get_template("page.html.j2").render(report=report, css=css, js=js)
    return "\n".join(line for line in (row.strip() for row in text.splitlines()) if line) + "\n"


def _panels(block: Lines, name: str, markup: Any) -> Iterator[tuple[Panel, str]]:
    return zip(block.panels, map(markup, figures.lines(block, name)), strict=True)


def _intervals(block: Intervals, name: str, markup: Any) -> str:
    drawn: str = markup(figures.intervals(block, name))
    return drawn


def unit_width(table: Table, column: int) -> float:
    """Room for the longest unit of a column in em, so that the numbers before the units align."""
    longest = max((len(row[column].unit) for row in table.rows if not row[column].missing), default=0)
    return 0.25 + 0.62 * longest if longest else 0.0


def unit_widths(table: Table) -> tuple[float, ...]:
    """Of each column: once for all rows."""
    return tuple(unit_width(table, at) for at in range(len(table.columns)))


def flame_tint(frame: Frame, difference: bool) -> str:
    """Class of a frame's colour: of its file, or of how it leans in a difference."""
    if difference:
        return f"lean{round(frame.lean * LEANS)}"
    file = frame.where.rpartition(":")[0]
    # crc32 and not hash(): the same in every process
    return f"t{zlib.crc32(file.encode('utf-8', 'replace')) % TINTS}" if file else "tnone"
