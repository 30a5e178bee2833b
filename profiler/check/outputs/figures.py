"""Shows the rounds of a check as figures and as a table: slow-down of each, time of a step, load of the machine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from statistics import median, quantiles
from typing import Final

from profiler.check.model import BASE, CANDIDATE, Conditions, GateResult, Round, Throughput
from profiler.check.outputs import format as fmt
from profiler.core import units
from profiler.report import blocks as b
from profiler.report.table import Field, make_table, missing_cell, seconds_cell, share_cell

_TONES: Final = {BASE: b.side_tone(0), CANDIDATE: b.side_tone(1)}


def step_times(measured: Round, side: str) -> list[float]:
    """Seconds of every step of one side in a round."""
    return [step / 1e9 for block in measured.blocks if block.side == side for step in block.steps]


def rounds_with_slowdowns(speed: Throughput) -> Iterator[tuple[Round, float | None]]:
    """Every round with the slow-down of its typical step."""
    return zip(speed.rounds, chain(speed.round_slowdowns, repeat(None)), strict=False)


def slowdown_figure(result: GateResult) -> Iterator[b.IntervalChart]:
    """Estimates with their bounds and the rounds behind them; nothing if nothing was measured."""
    speed = result.throughput
    if speed is None:
        return
    rows = []
    for index, line in enumerate(speed.lines):
        value = fmt.percentage(line.slowdown)
        if value is not None:
            dots = _percentages(speed.round_slowdowns) if index == 0 else ()  # only of the typical step
            low, high = fmt.percentage(line.low), fmt.percentage(line.high)
            label = fmt.slower_or_faster(line.slowdown)
            rows.append(b.Interval(line.name, _TONES[CANDIDATE], dots, value, low, high, label))
    if not rows:
        return
    detect = result.limits.detect
    levels = [b.Level("no change:", 0.0, "0%")]
    levels += [b.Level("detected:", 100 * detect, fmt.share(detect))] if math.isfinite(detect) else []
    yield b.IntervalChart(
        "Estimates with their bounds, and every round",
        "percent of a step's time; to the right: slower",
        tuple(rows),
        note="Lines: the estimate with its one-sided bounds. Dots: the typical step of each round, from pairs of "
        "neighbouring blocks.",
        levels=tuple(levels),
    )


def _percentages(slowdowns: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(value for slowdown in slowdowns if (value := fmt.percentage(slowdown)) is not None)


def step_time_figure(speed: Throughput) -> Iterator[b.Lines]:
    """The step time of each side by round, which shows drifts; nothing without rounds."""
    curves = tuple(curve for side in (BASE, CANDIDATE) if (curve := _step_time_curve(speed, side)).x)
    if curves:
        yield b.Lines(
            "Median step of each side, round by round",
            "round",
            "ms",
            (b.Panel("", curves),),
            note="Bars: the middle half of a side's steps.",
            numbered=True,
        )


def _step_time_curve(speed: Throughput, side: str) -> b.Curve:
    times = [(item.number, [1e3 * step for step in step_times(item, side)]) for item in speed.rounds]
    points = [(number, steps) for number, steps in times if steps]
    quartiles = [quantiles(steps, n=4) if len(steps) > 1 else [steps[0]] * 3 for _, steps in points]
    return b.Curve(
        side,
        _TONES[side],
        tuple(float(number) for number, _ in points),
        tuple(median(steps) for _, steps in points),
        tuple(low for low, _, _ in quartiles),
        tuple(high for _, _, high in quartiles),
    )


def rounds_table(speed: Throughput) -> Iterator[b.Table]:
    """Start order, step times, slow-down and conditions of every round; nothing without rounds."""
    if speed.rounds:
        yield make_table("Every round", _ROUND_FIELDS, rounds_with_slowdowns(speed), _ROUNDS_NOTE)


def _step_cell(measured: Round, side: str) -> b.Cell:
    times = step_times(measured, side)
    return seconds_cell(median(times)) if times else missing_cell("it took no step")


def _load_cell(conditions: Conditions) -> b.Cell:
    if conditions.load is None:
        return missing_cell(fmt.NOT_REPORTED)
    cores = "" if conditions.cores is None else f"on {conditions.cores:,}"
    return b.Cell(units.significant(conditions.load, 2), cores, sort=conditions.load)


def _steal_cell(conditions: Conditions) -> b.Cell:
    return missing_cell(fmt.NOT_REPORTED) if conditions.steal is None else share_cell(conditions.steal)


_ROUND_FIELDS: Final[tuple[Field[tuple[Round, float | None]], ...]] = (
    Field("Round", lambda row: b.Cell(f"{row[0].number}", note=row[0].kind, sort=row[0].number)),
    Field("Start order", lambda row: b.Cell(", ".join(row[0].slots))),
    Field("Base step", lambda row: _step_cell(row[0], BASE), number=True),
    Field("Candidate step", lambda row: _step_cell(row[0], CANDIDATE), number=True),
    Field("Slow-down", lambda row: percent_cell(row[1], "too few blocks"), number=True),
    Field("Load", lambda row: _load_cell(row[0].conditions), number=True),
    Field("Steal", lambda row: _steal_cell(row[0].conditions), number=True),
    Field("Throttled by", lambda row: b.Cell(", ".join(row[0].conditions.throttled) or b.NOTHING)),
)
_ROUNDS_NOTE: Final = (
    "Steps: medians of the round. Slow-down: of the typical step, from pairs of neighbouring blocks, as in the "
    "verdict; not the ratio of the medians. Load: runnable threads of all programs, on so many cores. Steal: share "
    "of the cores' time that other virtual machines took. Throttled by: what kept clocks low."
)


def percent_cell(slowdown: float | None, reason: str) -> b.Cell:
    """A slow-down in percent; missing for `reason` if it is not a number."""
    value = fmt.percentage(slowdown)
    return missing_cell(reason) if value is None else b.Cell(fmt.percent(slowdown).removesuffix("%"), "%", sort=value)
