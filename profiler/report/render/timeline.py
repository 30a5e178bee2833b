"""Draws a timeline as an SVG for each track, and its events as compact data for the script of the page."""

from __future__ import annotations

import json
import math
import zlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Final

from profiler.core.terminal import plain
from profiler.report.blocks import TimelineChart, TimelineKind, TimelineTrack
from profiler.report.render.drawing import round_step

CELLS: Final = 4_000
"""Columns of the picture of a track: a quarter of a pixel on a wide page, so that short parts show in proportion."""
_MOST_TICKS: Final = 6
_LEAST_SHARE: Final = 0.005  # which is 1% when rounded
_UNITS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


ColumnRun = tuple[int, int, str]
"""First column, the column after the last, and the tone."""


def cell_runs(track: TimelineTrack, tones: Sequence[str], length: int, cells: int = CELLS) -> list[ColumnRun]:
    """Runs of columns with one tone.

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
    """Tone and SVG path of each category of a track: thick strokes, and the moves between them, in columns."""
    parts: dict[str, list[str]] = {}
    ends: dict[str, int] = {}
    for first, last, tone in cell_runs(track, [kind.tone for kind in chart.kinds], chart.length):
        move = f"m{first - ends[tone]} 0" if tone in ends else f"M{first} .5"
        parts.setdefault(tone, []).append(f"{move}h{last - first}")
        ends[tone] = last
    for tone, texts in parts.items():
        yield tone, "".join(texts)


def ticks(length: int) -> list[tuple[float, str]]:
    """Round times of the axis: the share of the length, and the text; the first one names the unit."""
    size, unit = next(((size, unit) for size, unit in _UNITS if length >= size), _UNITS[-1])
    value = length / size
    step = round_step(value / _MOST_TICKS)
    return [
        (number * step / value, f"{number * step:g}{f' {unit}' * (number == 0)}")
        for number in range(math.floor(value / step) + 1)
    ]


def script_data(chart: TimelineChart) -> str:
    """The events for the page's script, as JSON that is compressed and written in base64.

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
    """Program, track, and the shares of its categories: for outputs without pictures."""
    return [
        (group.label, track.label, ", ".join(f"{kind.label} {share:.0%}" for kind, share in _seen(track, chart)))
        for group in chart.groups
        for track in group.tracks
    ]


def _seen(track: TimelineTrack, chart: TimelineChart) -> list[tuple[TimelineKind, float]]:
    return [(kind, share) for kind, share in track.shares(chart).items() if share >= _LEAST_SHARE]
