"""The layout of a waterfall: where steps, ranges and ticks lie on its logarithmic axis, for whoever draws them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from profiler.report.blocks import Stair, Waterfall
from profiler.report.render.text import tick

_MARGIN = 0.03
"""Of the axis left free at both ends, so that no mark is cut."""
_BEYOND = 0.15
"""Most of the span of all levels by which ranges lengthen the axis to either side; wider ones are cut."""
_LEAST = math.log(1.1)
"""Least length of the axis: noise about one level must not fill the width."""
_DENSE = math.log(4_000)
"""Length up to which 1, 2 and 5 of each decade have room for a label on a phone; beyond, decades only."""

_MARKS = {"start": "◆", "gain": "█", "loss": "▓", "same": "░", "unknown": "▒", "total": "█", "range": "─"}
_ASCII_MARKS = {"start": "o", "gain": "#", "loss": "x", "same": "~", "unknown": "?", "total": "#", "range": "-"}


@dataclass(frozen=True, slots=True)
class Placed:
    """One step; all places are shares of the axis, and None where there is nothing to place."""

    stair: Stair
    at: float | None
    """Where it ends."""
    left: float | None
    right: float | None
    """The bar between its two levels, whichever is lower first."""
    low: float | None
    high: float | None
    """Within the axis; a range that goes on beyond it is open there."""
    low_open: bool = False
    high_open: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """A waterfall that only has to be painted."""

    rows: tuple[Placed, ...]
    ticks: tuple[tuple[float, str], ...]
    """Place and label."""


def layout(block: Waterfall) -> Layout:
    """Places of everything in `block`; empty where no level is known."""
    levels = [math.log(value) for stair in block.stairs for value in (stair.begin, stair.end) if value is not None]
    if not levels:
        return Layout(tuple(Placed(stair, None, None, None, None, None) for stair in block.stairs), ())
    begin, length = _axis(block, min(levels), max(levels))

    def place(value: float | None) -> float | None:
        return None if value is None else (math.log(value) - begin) / length

    rows = []
    for stair in block.stairs:
        ends = sorted(at for at in (place(stair.begin), place(stair.end)) if at is not None)
        left, right = (ends[0], ends[1]) if len(ends) == 2 else (None, None)
        low, high = place(stair.low), place(stair.high)
        low_open, high_open = low is not None and low < 0, high is not None and high > 1
        rows.append(Placed(stair, place(stair.end), left, right, _inside(low), _inside(high), low_open, high_open))
    return Layout(tuple(rows), tuple((((math.log(v) - begin) / length), tick(v)) for v in _ticks(begin, length)))


def _inside(place: float | None) -> float | None:
    return None if place is None else min(max(place, 0.0), 1.0)


def _axis(block: Waterfall, lowest: float, highest: float) -> tuple[float, float]:
    """Logarithm at which the axis begins, and its length: all levels, and ranges as far as they leave room for them."""
    if highest - lowest < _LEAST:
        middle = (lowest + highest) / 2
        lowest, highest = middle - _LEAST / 2, middle + _LEAST / 2
    room = _BEYOND * (highest - lowest)
    ends = [math.log(value) for stair in block.stairs for value in (stair.low, stair.high) if value is not None]
    first, last = max(lowest - room, min((lowest, *ends))), min(highest + room, max((highest, *ends)))
    margin = _MARGIN * (last - first)
    return first - margin, last - first + 2 * margin


def track(row: Placed, width: int, *, unicode: bool = True) -> str:
    """One step in `width` characters: its range thin, its bar over it, a mark where it has no bar."""
    marks = _MARKS if unicode else _ASCII_MARKS
    cells = [" "] * width

    def fill(left: float | None, right: float | None, mark: str) -> None:
        if left is not None and right is not None:
            first = min(width - 1, int(left * width))
            cells[first : max(first + 1, round(right * width))] = mark * (max(first + 1, round(right * width)) - first)

    fill(row.low, row.high, marks["range"])
    fill(*((row.left, row.right) if row.left is not None else (row.at, row.at)), marks[row.stair.kind])
    return "".join(cells)


def _ticks(begin: float, length: float) -> Iterator[float]:
    """Round values on the axis; where it holds fewer than two of 1, 2 and 5, any with one digit, else with two."""
    first, last = math.floor(begin / math.log(10)), math.ceil((begin + length) / math.log(10))
    choices: tuple[tuple[float, ...], ...] = ((1.0, 2.0, 5.0),) if length <= _DENSE else ((1.0,),)
    choices += (tuple(float(n) for n in range(1, 10)), tuple(n / 10 for n in range(10, 100)))
    found: list[float] = []
    for digits in choices:
        values = (digit * 10.0**decade for decade in range(first, last + 1) for digit in digits)
        found = [value for value in values if begin <= math.log(value) <= begin + length]
        if len(found) >= 2:
            break
    return iter(found)
