"""Figures of a gate's rounds: the slow-down of each beside the estimates, and what a step took in each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from statistics import median, quantiles
from typing import Final

from profiler.check.model import BASE, CANDIDATE, CONTROL, GateResult, Throughput
from profiler.check.outputs import words
from profiler.check.outputs.rounds import said_by_rounds, step_times
from profiler.report.blocks import Curve, Interval, Intervals, Level, Lines, Panel, side_tone

_MS: Final = 1e3
_NOTE: Final = (
    "Lines: the estimate with its one-sided bounds. Dots, one a round: its typical step, from pairs of neighbouring "
    "turns, as the verdict takes it."
)
_TONES: Final = {BASE: side_tone(0), CANDIDATE: side_tone(1), CONTROL: "floor"}


def slowdowns(result: GateResult) -> Iterator[Intervals]:
    """Estimates with their bounds and the rounds behind them; nothing where nothing was measured."""
    gate = result.throughput
    rows = [*_estimates(gate), *_control(gate)] if gate is not None else []
    if not rows:
        return
    detect = result.limits.detect
    levels = [Level("no change:", 0.0, "0%")]
    levels += [Level("caught:", 100 * detect, words.share(detect))] if math.isfinite(detect) else []
    yield Intervals(
        "Estimates with their bounds, and every round",
        "percent of a step's time; to the right: slower",
        tuple(rows),
        note=_NOTE,
        levels=tuple(levels),
    )


def _estimates(gate: Throughput) -> Iterator[Interval]:
    dots = _percents(value for _, (value, _) in said_by_rounds(gate))
    for at, line in enumerate(gate.lines):
        value = words.in_percent(line.slowdown)
        if value is not None:
            low, high = words.in_percent(line.low), words.in_percent(line.high)
            shown = dots if at == 0 else ()  # the typical step's comes first
            yield Interval(line.name, _TONES[CANDIDATE], shown, value, low, high, words.slowdown(line.slowdown))


def _control(gate: Throughput) -> Iterator[Interval]:
    value = words.in_percent(gate.control)
    if value is not None:
        dots = _percents(control for _, (_, control) in said_by_rounds(gate))
        yield Interval("base against itself", _TONES[CONTROL], dots, value, None, None, words.slowdown(gate.control))


def _percents(slowdowns: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(value for one in slowdowns if (value := words.in_percent(one)) is not None)


def drift(gate: Throughput) -> Iterator[Lines]:
    """What a step took in each round: whether the machine, or a side, changed on the way."""
    curves = [_curve(gate, side) for side in (BASE, CANDIDATE, CONTROL)]
    known = tuple(curve for curve in curves if curve.x)
    if known:
        yield Lines(
            "Median step of each side, round by round",
            "round",
            "ms",
            (Panel("", known),),
            note="Bars: the middle half of a side's steps.",
            numbered=True,
        )


def _curve(gate: Throughput, side: str) -> Curve:
    points = [(one.number, times) for one in gate.rounds if (times := step_times(one).get(side))]
    quarters = [quantiles(times, n=4) if len(times) > 1 else [times[0]] * 3 for _, times in points]
    return Curve(
        words.SIDES[side],
        _TONES[side],
        tuple(float(number) for number, _ in points),
        tuple(_MS * median(times) for _, times in points),
        tuple(_MS * one[0] for one in quarters),
        tuple(_MS * one[2] for one in quarters),
    )
