"""Plots as SVG that takes its colours and fonts from the page around it: one drawing for light and dark.

Matplotlib draws with a stand-in colour for each role; the SVG then gets CSS variables in their place. Made for
`WIDTH` CSS pixels, where a phone shows them whole, and scaled up a little on wide screens. Same input, same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from profiler.core.terminal import plain
from profiler.report.blocks import SIDE_TONES, Curve, Interval, IntervalChart, Level, Lines, Panel
from profiler.report.render.drawing import tick

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 384
"""CSS pixels that a phone of 420 has for it; one point of Matplotlib is one unit of the viewBox."""
_ROLES = (*SIDE_TONES, "floor", "ink", "muted", "grid", "paper")
_STAND_IN = {role: f"#0a0b{index + 1:02x}" for index, role in enumerate(_ROLES)}
_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (9, 3)), (0, (3, 1, 1, 1, 1, 1)))
"""Dashes distinguish lines without colour too."""
_LABEL_BOX = {"facecolor": _STAND_IN["paper"], "edgecolor": "none", "pad": 1.5}
_ROOM = 0.03
"""Share of an axis that lies beyond single measurements at its ends."""
_LEVEL = 17
"""Points for the name of a line across an interval plot."""
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "report",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",  # ships with Matplotlib: the same layout on every machine
    "font.size": 11,
    "axes.linewidth": 0.8,
    "axes.edgecolor": _STAND_IN["muted"],
    "axes.labelcolor": _STAND_IN["muted"],
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "text.color": _STAND_IN["ink"],
    "xtick.color": _STAND_IN["muted"],
    "ytick.color": _STAND_IN["muted"],
    "grid.color": _STAND_IN["grid"],
    "grid.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "xtick.major.pad": 6,
    "legend.frameon": False,
    "path.simplify": True,
}


@contextmanager
def _figure(height: float) -> Iterator[Figure]:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_SETTINGS):
        yield Figure(figsize=(WIDTH / 72, height / 72), dpi=72)


def lines(block: Lines, name: str) -> tuple[str, ...]:
    """One SVG for each panel; `name` makes their ids unique in the page."""
    return tuple(_panel(block, panel, f"{name}-{i}") for i, panel in enumerate(block.panels))


def _limits(block: Lines, panel: Panel) -> tuple[float, float, float]:
    """Both ends of the x axis and the upper one of y, with room beyond the last of single measurements."""
    curves = [curve for item in ((panel,) if block.separate_x else block.panels) for curve in item.curves]
    x_max = max((max(curve.x) for curve in curves if curve.x), default=1.0) or 1.0
    y_max = block.y_max or 1.05 * block.y_limit(panel) or 1.0
    if block.numbered:
        x_max = max(x_max, 2.0)
        room = _ROOM * (x_max - 1)
        return 1 - room, x_max + room, y_max
    return 0.0, (1 + _ROOM) * x_max if any(curve.high for curve in curves) else x_max, y_max


def _panel(block: Lines, panel: Panel, name: str) -> str:
    from matplotlib.ticker import FuncFormatter

    limits = _limits(block, panel)
    with _figure(190) as figure:
        axes = figure.add_axes((0.115, 0.215, 0.865, 0.685))
        for curve in panel.curves:
            _curve(axes, curve, alone=len(panel.curves) == 1)
        axes.set_xlim(*limits[:2])
        axes.set_ylim(0, limits[2])
        for level in panel.levels:
            _level(axes, level, below=level.value > 0.85 * limits[2])
        axes.locator_params(axis="y", nbins=4)
        axes.locator_params(axis="x", nbins=6, integer=block.numbered)
        axes.grid(visible=False, axis="x")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
        axes.set_xlabel(plain(block.x_label), labelpad=3)
        axes.text(0, 1.04, plain(panel.y_label or block.y_label), transform=axes.transAxes, color=_STAND_IN["muted"])
        return _svg(figure, name)


def _curve(axes: Axes, curve: Curve, *, alone: bool) -> None:
    tone = curve.tone if curve.tone in _STAND_IN else "s1"
    colour = _STAND_IN[tone]
    if alone:
        axes.fill_between(curve.x, curve.y, color=colour, alpha=0.14, linewidth=0)
    dash = "-" if alone or tone not in SIDE_TONES else _DASHES[SIDE_TONES.index(tone) % len(_DASHES)]
    axes.plot(curve.x, curve.y, color=colour, linewidth=1.8, linestyle=dash)
    if curve.high:
        axes.vlines(curve.x, curve.low, curve.high, color=colour, linewidth=5, alpha=0.35)
        axes.scatter(
            curve.x, curve.y, s=30, color=colour, edgecolors=_STAND_IN["paper"], linewidths=0.8, zorder=3, clip_on=False
        )


def _level(axes: Axes, level: Level, *, below: bool) -> None:
    """A dashed line with its name at the right end, clear of the frame."""
    axes.axhline(level.value, color=_STAND_IN["ink"], linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        f"{plain(level.label)} {plain(level.text)}",
        (1.0, level.value),
        xycoords=("axes fraction", "data"),
        xytext=(0, -4 if below else 4),
        textcoords="offset points",
        horizontalalignment="right",
        verticalalignment="top" if below else "bottom",
        bbox=_LABEL_BOX,
    )


def intervals(block: IntervalChart, name: str) -> str:
    """Dots of every observation, the range as a bar, the estimate as a line, a row each."""
    above = _LEVEL * len(block.levels)
    height = 46 + 52 * len(block.rows) + above
    with _figure(height) as figure:
        axes = figure.add_axes((0.04, 40 / height, 0.92, 1 - (44 + above) / height))
        for index, row in enumerate(block.rows):
            _interval_row(axes, row, len(block.rows) - 1 - index)
        axes.set_ylim(-0.45, len(block.rows) - 0.05)
        axes.set_yticks([])
        _scale(axes, block)
        for index, level in enumerate(block.levels):
            _upright(axes, level, index)
        axes.set_xlabel(plain(block.x_label), labelpad=3)
        return _svg(figure, name)


def _interval_row(axes: Axes, row: Interval, y: int) -> None:
    colour = _STAND_IN[row.tone if row.tone in _STAND_IN else "s1"]
    if row.low is not None and row.high is not None:
        axes.plot((row.low, row.high), (y, y), color=colour, linewidth=9, alpha=0.28, solid_capstyle="butt")
    axes.plot((row.value, row.value), (y - 0.2, y + 0.2), color=colour, linewidth=2.4)
    # a fixed jitter, so that equal observations stay countable and the drawing stays the same
    heights = [y + 0.09 * ((index % 3) - 1) for index in range(len(row.dots))]
    axes.scatter(row.dots, heights, s=30, color=colour, edgecolors=_STAND_IN["paper"], linewidths=0.8, zorder=3)
    text = f"{plain(row.label)[:32]}  {plain(row.text)}"
    axes.annotate(
        text, (0.0, y), xycoords=("axes fraction", "data"), xytext=(0, 15), textcoords="offset points", bbox=_LABEL_BOX
    )


def _upright(axes: Axes, level: Level, index: int) -> None:
    """A dashed line across the rows with its name above them, on a line of its own, toward the middle."""
    left, right = axes.get_xlim()
    axes.axvline(level.value, color=_STAND_IN["ink"], linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        f"{plain(level.label)} {plain(level.text)}",
        (level.value, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, 3 + _LEVEL * index),
        textcoords="offset points",
        horizontalalignment="left" if level.value < (left + right) / 2 else "right",
    )


def _scale(axes: Axes, block: IntervalChart) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    everything = [v for row in block.rows for v in (*row.dots, row.value, row.low, row.high) if v is not None]
    everything += [level.value for level in block.levels]
    low, high = min(everything), max(everything)
    if block.log:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.6, high * 1.6)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 300 else (1,), numticks=12))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        margin = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
        if block.reference is not None and low - 0.5 * (high - low) <= block.reference <= high + 0.5 * (high - low):
            low, high = min(low, block.reference), max(high, block.reference)
        axes.set_xlim(low - margin, high + margin)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    if block.reference is not None:
        left, right = axes.get_xlim()
        if left <= block.reference <= right:
            axes.axvline(block.reference, color=_STAND_IN["ink"], linewidth=1, linestyle=(0, (4, 3)))


def _svg(figure: Figure, name: str) -> str:
    buffer = io.StringIO()
    with warnings.catch_warnings():
        # the page's fonts draw the text: what Matplotlib's own font lacks does not matter
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return page_svg(buffer.getvalue(), name)


def page_svg(svg: str, name: str) -> str:
    """Matplotlib's SVG fitted to a page: no prologue, no style of its own, unique ids, colours by CSS variable."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    size = re.search(r'viewBox="([^"]*)"', svg)
    box = size.group(1) if size else f"0 0 {WIDTH} 200"
    head = f'<svg viewBox="{box}" class="plot" aria-hidden="true" focusable="false">'
    svg = head + svg[svg.index(">") + 1 :]
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg).replace("xlink:href", "href")
    for role, colour in _STAND_IN.items():
        svg = svg.replace(colour, f"var(--{role})")
    svg = re.sub(r"font: (?:[a-z]+ )*([\d.]+)px [^;\"]*", r"font-size: \1px", svg)
    svg = re.sub(r"; font-family: [^;\"]*", "", svg)
    return re.sub(r"\s*\n\s*", " ", re.sub(r">\s+<", "><", svg)).strip()
