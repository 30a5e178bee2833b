"""Plots as SVG whose colours, dashes and fonts are classes of page.css: one drawing for light, dark and print.

Made for `WIDTH` CSS pixels, and scaled up a little where there is more room.
"""

from __future__ import annotations

import json
import math
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import Final

from profiler.core.terminal import plain
from profiler.report.blocks import (
    SIDE_TONES,
    Curve,
    Interval,
    IntervalChart,
    Lines,
    Panel,
    TimelineChart,
    TimelineTrack,
)
from profiler.report.render.drawing import log_ticks, round_step, tick

WIDTH = 320
"""CSS pixels of half a column on a wide page, and about what a phone has for it; the unit of the drawing."""
_ROOM = 0.03
"""Share of an axis that lies beyond single measurements at its ends."""
_LEFT, _RIGHT, _TOP, _HEIGHT = 36, 312, 18, 60
"""The area of curves: the numbers of the axes stand left of it and below it."""
_OF_LEVEL = 14
"""How much higher it is for each named line across a plot."""
_BELOW = 32
"""Height of the numbers and the name of the axis below it."""
_ROW, _EDGE = 34, 12
"""Of an interval plot: the height of a row, and the width of both edges."""
_LEVEL = 17
"""The height of the name of a line across an interval plot."""
_MOST_X_TICKS, _MOST_Y_TICKS = 6, 3
_LINE = 12.0
"""The least distance between two names of lines across a plot."""
_HALF_LETTER = 3.0
"""About half the width of a letter of 11 pixels."""

Scale = Callable[[float], float]


def lines(block: Lines) -> tuple[str, ...]:
    """Return one SVG for each panel."""
    return tuple(_panel(block, panel) for panel in block.panels)


def _limits(block: Lines, panel: Panel) -> tuple[float, float, float]:
    """Return both ends of the x axis and the upper one of y, with room beyond the last of single measurements."""
    curves = [curve for item in ((panel,) if block.separate_x else block.panels) for curve in item.curves]
    x_max = max((max(curve.x) for curve in curves if curve.x), default=1.0) or 1.0
    y_max = block.y_max or 1.05 * block.y_limit(panel) or 1.0
    if block.numbered:
        x_max = max(x_max, 2.0)
        room = _ROOM * (x_max - 1)
        return 1 - room, x_max + room, y_max
    return 0.0, (1 + _ROOM) * x_max if any(curve.high for curve in curves) else x_max, y_max


def _panel(block: Lines, panel: Panel) -> str:
    low, high, top = _limits(block, panel)
    bottom = _TOP + _HEIGHT + _OF_LEVEL * max(len(each.levels) for each in block.panels)
    x, height = _linear(low, high, _LEFT, _RIGHT), _linear(0.0, top, bottom, _TOP)

    def y(value: float) -> float:
        return height(min(value, top))  # between two close readings of a clock a share can exceed 100%

    rises = [value for value in round_ticks(0.0, top, _MOST_Y_TICKS) if value <= top]
    parts = [f'<path class="rule" d="{"".join(f"M{_LEFT} {_n(y(value))}H{_RIGHT}" for value in rises if value)}"/>']
    parts += [
        curve for each in panel.curves for curve in _curve(each, x, y, bottom if len(panel.curves) == 1 else None)
    ]
    parts.append(f'<path class="base" d="M{_LEFT} {bottom}H{_RIGHT}"/>')
    across = round_ticks(low, high, _MOST_X_TICKS, least=1.0 if block.numbered else 0.0)
    parts += [_text(x(value), bottom + 14, tick(value)) for value in across]
    above = -math.inf
    for level in sorted(panel.levels, key=lambda level: -level.value):
        at, name = y(level.value), f"{level.label} {level.text}"
        parts.append(f'<path class="level" d="M{_LEFT} {_n(at)}H{_RIGHT}"/>')
        above = max(at + (13 if level.value > 0.85 * top else -5), above + _LINE)
        parts.append(_text(_RIGHT, above, name, "end", ink=True))
    parts.append(_text((_LEFT + _RIGHT) / 2, bottom + 28, block.x_label))
    parts += [_text(_LEFT - 4, y(value) + 4, tick(value), "end") for value in rises]
    parts.append(_text(_LEFT, _TOP - 6, panel.y_label or block.y_label, "start"))
    return _svg(parts, bottom + _BELOW)


def _curve(curve: Curve, x: Scale, y: Scale, filled_to: float | None) -> Iterable[str]:
    """Yield a line with the ranges of its points; its area where it is the only one, down to `filled_to`."""
    if not curve.x:
        return
    tone = _tone(curve.tone)
    path = _path([(x(a), y(b)) for a, b in zip(curve.x, curve.y, strict=True)])
    if filled_to is not None:
        yield f'<path class="area {tone}" d="{path}V{filled_to}H{_n(x(curve.x[0]))}z"/>'
    yield f'<path class="curve {tone}{" dashed" if filled_to is None else ""}" d="{path}"/>'
    if curve.high:
        ranges = zip(curve.x, curve.low, curve.high, strict=True)
        spread = "".join(f"M{_n(x(at))} {_n(y(low))}V{_n(y(high))}" for at, low, high in ranges)
        yield f'<path class="spread {tone}" d="{spread}"/>'
        yield from _dots(tone, ((x(a), y(b)) for a, b in zip(curve.x, curve.y, strict=True)))


def intervals(block: IntervalChart) -> str:
    """Draw a row for each: its observations as dots, the range as a bar, the estimate as a line."""
    above = 4 + _LEVEL * len(block.levels)
    bottom = above + _ROW * len(block.rows) + 2
    x, ticks = _scale(block)
    parts = [f'<path class="rule" d="{"".join(f"M{_n(x(value))} {above}V{bottom}" for value in ticks)}"/>']
    if block.reference is not None and _EDGE <= x(block.reference) <= WIDTH - _EDGE:
        parts.append(f'<path class="level" d="M{_n(x(block.reference))} {above}V{bottom}"/>')
    for index, level in enumerate(block.levels):
        at, is_left = x(level.value), x(level.value) < WIDTH / 2
        parts.append(f'<path class="level" d="M{_n(at)} {above - 4 - _LEVEL * index}V{bottom}"/>')
        name = f"{level.label} {level.text}"
        parts.append(_text(at, above - 4 - _LEVEL * index, name, "start" if is_left else "end", ink=True))
    for index, row in enumerate(block.rows):
        parts += _interval_row(row, x, above + _ROW * index + 24)
    parts.append(f'<path class="base" d="M{_EDGE} {bottom}H{WIDTH - _EDGE}"/>')
    parts += [_text(_within(x(value), tick(value)), bottom + 15, tick(value)) for value in ticks]
    parts.append(_text(WIDTH / 2, bottom + 28, block.x_label))
    return _svg(parts, bottom + 34)


def _interval_row(row: Interval, x: Scale, y: float) -> Iterable[str]:
    tone = _tone(row.tone)
    if row.low is not None and row.high is not None:
        yield f'<path class="spread wide {tone}" d="M{_n(x(row.low))} {y}H{_n(x(row.high))}"/>'
    yield f'<path class="curve {tone}" d="M{_n(x(row.value))} {y - 9}v18"/>'
    # fixed heights, so that equal observations stay countable and the drawing stays the same
    yield from _dots(tone, ((x(value), y + 4 * (index % 3 - 1)) for index, value in enumerate(row.dots)))
    yield _text(_EDGE, y - 12, f"{row.label[:32]}  {row.text}", "start", ink=True)


def _scale(block: IntervalChart) -> tuple[Scale, list[float]]:
    """Return the position of a value, and the values of the ticks."""
    everything = [v for row in block.rows for v in (*row.dots, row.value, row.low, row.high) if v is not None]
    everything += [level.value for level in block.levels]
    low, high = min(everything), max(everything)
    if block.log:
        first, last = math.log(low / 1.6), math.log(high * 1.6)
        place = _linear(first, last, _EDGE, WIDTH - _EDGE)
        return lambda value: place(math.log(value)) if value > 0 else -math.inf, log_ticks(first, last - first)
    margin = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    if block.reference is not None and low - 0.5 * (high - low) <= block.reference <= high + 0.5 * (high - low):
        low, high = min(low, block.reference), max(high, block.reference)
    low, high = low - margin, high + margin
    return _linear(low, high, _EDGE, WIDTH - _EDGE), round_ticks(low, high, _MOST_X_TICKS)


def round_ticks(low: float, high: float, most: int, *, least: float = 0.0) -> list[float]:
    """Return at most `most` + 1 multiples of a round step between both ends.

    :param least: the least step; 1 for numbered things.
    """
    step = max(round_step((high - low) / most), least)
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


# ---------------------------------------------------------------- shapes


def _linear(low: float, high: float, begin: float, end: float) -> Scale:
    return lambda value: begin + (value - low) / (high - low) * (end - begin)


def _tone(tone: str) -> str:
    return tone if tone in {*SIDE_TONES, "floor"} else SIDE_TONES[0]


def _n(value: float) -> str:
    """Return a tenth of a pixel is enough for a line."""
    return f"{round(value, 1):g}"


def _path(points: Sequence[tuple[float, float]]) -> str:
    """Return a line through the points, in relative steps; level stretches are one step."""
    tenths = [(round(10 * x), round(10 * y)) for x, y in points]
    (x, y), steps = tenths[0], []
    for index, (to_x, to_y) in enumerate(tenths[1:], 1):
        is_level = to_y == y and index + 1 < len(tenths) and tenths[index + 1][1] == y
        if not is_level:
            steps.append(f"{(to_x - x) / 10:g} {(to_y - y) / 10:g}")
            x, y = to_x, to_y
    return f"M{tenths[0][0] / 10:g} {tenths[0][1] / 10:g}l{' '.join(steps) or '0 0'}"


def _dots(tone: str, places: Iterable[tuple[float, float]]) -> Iterable[str]:
    for x, y in places:
        yield f'<circle class="point {tone}" cx="{_n(x)}" cy="{_n(y)}" r="2.7"/>'


def _within(x: float, text: str) -> float:
    half = _HALF_LETTER * len(text)
    return min(max(x, half), WIDTH - half)


def _text(x: float, y: float, text: str, anchor: str = "", *, ink: bool = False) -> str:
    classes = " ".join(filter(None, (anchor, "ink" * ink)))
    named = f' class="{classes}"' if classes else ""
    return f'<text x="{_n(x)}" y="{_n(y)}"{named}>{escape(plain(text))}</text>'


def _svg(parts: Iterable[str], height: float) -> str:
    start = f'<svg viewBox="0 0 {WIDTH} {height:g}" class="plot" aria-hidden="true" focusable="false">'
    return f"{start}{''.join(parts)}</svg>"


CELLS: Final = 4_000
"""Columns of the picture of a track: a quarter of a pixel on a wide page, so that short parts show in proportion."""
_MOST_TICKS: Final = 6
_LEAST_SHARE: Final = 0.005  # which is 1% when rounded
_UNITS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


ColumnRun = tuple[int, int, str]
"""First column, the column after the last, and the tone."""


def cell_runs(track: TimelineTrack, tones: Sequence[str], length: int, cells: int = CELLS) -> list[ColumnRun]:
    """Return runs of columns with one tone.

    A column that several parts share has the tone with the largest share of it; none where most of it is idle.
    """
    runs: list[ColumnRun] = []
    shared: dict[str, float] = {}
    column = -1

    def add(first: int, last: int, tone: str) -> None:
        if runs and runs[-1][1] == first and runs[-1][2] == tone:
            first = runs.pop()[0]
        runs.append((first, last, tone))

    def flush() -> None:
        if shared:
            tone = max(shared, key=lambda each: shared[each])
            if shared[tone] >= 1 - sum(shared.values()):
                add(column, column + 1, tone)
            shared.clear()

    for begin, end, kind in zip(track.begin, track.end, track.kind, strict=True):
        tone = tones[kind]
        left, right = begin * cells / length, min(end * cells / length, cells)
        first, last = int(left), int(right)
        if first != column:
            flush()
            column = first
        shared[tone] = shared.get(tone, 0.0) + min(right, first + 1) - left
        if last > first:
            flush()
            if last > first + 1:
                add(first + 1, last, tone)
            column = last
            if right > last:
                shared[tone] = right - last
    flush()
    return runs


def paths(track: TimelineTrack, chart: TimelineChart) -> Iterator[tuple[str, str]]:
    """Yield tone and SVG path of each category of a track: thick strokes, and the moves between them, in columns."""
    parts: dict[str, list[str]] = {}
    ends: dict[str, int] = {}
    for first, last, tone in cell_runs(track, [kind.tone for kind in chart.kinds], chart.length):
        move = f"m{first - ends[tone]} 0" if tone in ends else f"M{first} .5"
        parts.setdefault(tone, []).append(f"{move}h{last - first}")
        ends[tone] = last
    for tone, texts in parts.items():
        yield tone, "".join(texts)


def ticks(length: int) -> list[tuple[float, str]]:
    """Return round times of the axis: the share of the length, and the text; the first one names the unit."""
    size, unit = next(((size, unit) for size, unit in _UNITS if length >= size), _UNITS[-1])
    value = length / size
    step = round_step(value / _MOST_TICKS)
    return [
        (number * step / value, f"{number * step:g}{f' {unit}' * (number == 0)}")
        for number in range(math.floor(value / step) + 1)
    ]


def script_data(chart: TimelineChart) -> str:
    """Return the events for the page's script, as JSON that is compressed and written in base64.

    A track is the name of its idle time, and three columns: the gap before each event and its length in ns, its kind.
    """
    data = {
        "length": chart.length,
        "kinds": [[plain(kind.label), kind.tone, plain(kind.text)] for kind in chart.kinds],
        "tracks": [[plain(track.idle.text), *_columns(track)] for group in chart.groups for track in group.tracks],
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return b64encode(zlib.compress(text.encode(errors="replace"), 9)).decode()


def _columns(track: TimelineTrack) -> tuple[list[int], list[int], tuple[int, ...]]:
    gaps = [begin - before for begin, before in zip(track.begin, (0, *track.end), strict=False)]
    return gaps, [end - begin for begin, end in zip(track.begin, track.end, strict=True)], track.kind


def text_rows(chart: TimelineChart) -> list[tuple[str, str, str]]:
    """Return program, track, and the shares of its categories: for outputs without pictures."""
    return [
        (
            group.label,
            track.label,
            ", ".join(
                f"{kind.label} {share:.0%}"
                for kind, share in [
                    (kind, share) for kind, share in track.shares(chart).items() if share >= _LEAST_SHARE
                ]
            ),
        )
        for group in chart.groups
        for track in group.tracks
    ]
