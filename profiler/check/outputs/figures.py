"""The rounds of a check as figures and as a table: slow-down of each, time of a step, load of the machine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from statistics import median, quantiles
from typing import Final

from profiler.check.model import BASE, CANDIDATE, CONTROL, GateResult, Round, Throughput
from profiler.check.outputs import format as fmt
from profiler.core import units
from profiler.report.blocks import (
    NOTHING,
    Cell,
    Column,
    Curve,
    Interval,
    IntervalChart,
    Level,
    Lines,
    Panel,
    Table,
    side_tone,
)
from profiler.report.table import missing_cell, seconds_cell, share_cell

_TONES: Final = {BASE: side_tone(0), CANDIDATE: side_tone(1), CONTROL: "floor"}
_NOT_REPORTED: Final = "this machine does not report it"


def step_times(measured: Round, side: str) -> list[float]:
    """Seconds of every step of one side in a round."""
    return [step / 1e9 for block in measured.blocks if block.side == side for step in block.steps]


def rounds_with_slowdowns(speed: Throughput) -> Iterator[tuple[Round, tuple[float | None, float | None]]]:
    """Every round with the slow-down of its typical step, of the candidate and of the control."""
    missing: tuple[float | None, float | None] = (None, None)
    return zip(speed.rounds, chain(speed.round_slowdowns, repeat(missing)), strict=False)


def slowdown_figure(result: GateResult) -> Iterator[IntervalChart]:
    """Estimates with their bounds and the rounds behind them; nothing if nothing was measured."""
    speed = result.throughput
    if speed is None:
        return
    pairs = [slowdowns for _, slowdowns in rounds_with_slowdowns(speed)]
    rows = []
    for index, line in enumerate(speed.lines):
        value = fmt.percentage(line.slowdown)
        if value is not None:
            dots = _percentages(slowdown for slowdown, _ in pairs) if index == 0 else ()  # only of the typical step
            low, high = fmt.percentage(line.low), fmt.percentage(line.high)
            label = fmt.slower_or_faster(line.slowdown)
            rows.append(Interval(line.name, _TONES[CANDIDATE], dots, value, low, high, label))
    value = fmt.percentage(speed.control)
    if value is not None:
        dots = _percentages(control for _, control in pairs)
        label = fmt.slower_or_faster(speed.control)
        rows.append(Interval("base against itself", _TONES[CONTROL], dots, value, None, None, label))
    if not rows:
        return
    detect = result.limits.detect
    levels = [Level("no change:", 0.0, "0%")]
    levels += [Level("detected:", 100 * detect, fmt.share(detect))] if math.isfinite(detect) else []
    yield IntervalChart(
        "Estimates with their bounds, and every round",
        "percent of a step's time; to the right: slower",
        tuple(rows),
        note="Lines: the estimate with its one-sided bounds. Dots: the typical step of each round, from pairs of "
        "neighbouring blocks.",
        levels=tuple(levels),
    )


def _percentages(slowdowns: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(value for slowdown in slowdowns if (value := fmt.percentage(slowdown)) is not None)


def step_time_figure(speed: Throughput) -> Iterator[Lines]:
    """The step time of each side by round, which shows drifts; nothing without rounds."""
    curves = tuple(curve for side in (BASE, CANDIDATE, CONTROL) if (curve := _step_time_curve(speed, side)).x)
    if curves:
        yield Lines(
            "Median step of each side, round by round",
            "round",
            "ms",
            (Panel("", curves),),
            note="Bars: the middle half of a side's steps.",
            numbered=True,
        )


def _step_time_curve(speed: Throughput, side: str) -> Curve:
    times = [(item.number, [1e3 * step for step in step_times(item, side)]) for item in speed.rounds]
    points = [(number, steps) for number, steps in times if steps]
    quartiles = [quantiles(steps, n=4) if len(steps) > 1 else [steps[0]] * 3 for _, steps in points]
    return Curve(
        side,
        _TONES[side],
        tuple(float(number) for number, _ in points),
        tuple(median(steps) for _, steps in points),
        tuple(low for low, _, _ in quartiles),
        tuple(high for _, _, high in quartiles),
    )


def rounds_table(speed: Throughput) -> Iterator[Table]:
    """Start order, step times, slow-down and conditions of every round; nothing without rounds."""
    if not speed.rounds:
        return
    columns = (
        Column("Round"),
        Column("Start order"),
        Column("Base step", number=True),
        Column("Candidate step", number=True),
        Column("Slow-down", number=True),
        Column("Load", number=True),
        Column("Steal", number=True),
        Column("Throttled by"),
    )
    note = (
        "Steps: medians of the round. Slow-down: of the typical step, from pairs of neighbouring blocks, as in the "
        "verdict; not the ratio of the medians. Load: runnable threads of all programs, on so many cores. Steal: share "
        "of the cores' time that other virtual machines took. Throttled by: what kept clocks low."
    )
    rows = tuple(_round_row(item, slowdown) for item, (slowdown, _) in rounds_with_slowdowns(speed))
    yield Table("Every round", columns, rows, note)


def _round_row(item: Round, slowdown: float | None) -> tuple[Cell, ...]:
    conditions = item.conditions
    steps = [step_times(item, side) for side in (BASE, CANDIDATE)]
    cores = "" if conditions.cores is None else f"on {conditions.cores:,}"
    load = conditions.load
    return (
        Cell(f"{item.number}", note=item.kind, sort=item.number),
        Cell(", ".join(item.slots)),
        *(seconds_cell(median(times)) if times else missing_cell("it took no step") for times in steps),
        percent_cell(slowdown, "too few blocks"),
        missing_cell(_NOT_REPORTED) if load is None else Cell(units.significant(load, 2), cores, sort=load),
        missing_cell(_NOT_REPORTED) if conditions.steal is None else share_cell(conditions.steal),
        Cell(", ".join(conditions.throttled) or NOTHING),
    )


def percent_cell(slowdown: float | None, reason: str) -> Cell:
    """A slow-down in percent; missing for `reason` if it is not a number."""
    value = fmt.percentage(slowdown)
    return missing_cell(reason) if value is None else Cell(fmt.percent(slowdown).removesuffix("%"), "%", sort=value)
