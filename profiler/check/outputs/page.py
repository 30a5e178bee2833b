"""Shows the result of a check as sections of a report: verdict, counters, throughput, method.

The page shows all blocks; the terminal and the summary of a job show the brief ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat
from statistics import median, quantiles
from typing import Final

from profiler.check.model import (
    BASE,
    CANDIDATE,
    FAIL,
    PASS,
    ChangeKind,
    Conditions,
    CounterLine,
    GateResult,
    Round,
    SideInfo,
    Throughput,
    TimeLine,
)
from profiler.check.outputs import format as fmt
from profiler.check.outputs import text
from profiler.check.outputs.first_screen import JUDGED, first_screen
from profiler.check.places import find_rises
from profiler.core import units
from profiler.core.terminal import plain
from profiler.report import blocks as b
from profiler.report.table import Field, make_table, missing_cell, seconds_cell, share_cell
from profiler.report.text import local_time, plural

_FAIL_FROM: Final = f"FAIL from ({fmt.DETECTED})"
_SHARED_TITLES: Final = ("Throughput", "Counters", "Method")
"""Titles that sections of the comparison have too."""
_COUNTING: Final = ("Counters are those of measured steps, each compared with what its baseline and its limits allow.",)
_MEASURING: Final = (
    "Each round starts fresh processes of both sides, which run in short alternating blocks, the other one paused.",
    "A slow-down is how much longer the candidate takes for the same work; a gain is negative, or marked 'faster'.",
    "Intervals are two one-sided bounds, each at the confidence of one look.",
    "A FAIL is confirmed in further rounds, in which the programs start in the other order.",
)


def gate_report(result: GateResult, comparison_sections: Sequence[b.Section] = ()) -> b.Report:
    """Return the page: the check first, then the comparison of both sides."""
    comparison = []
    for section in comparison_sections:
        title = "Comparison" if section.key == "verdict" else section.title
        title = f"{title} of the comparison" if title in _SHARED_TITLES else title
        comparison.append(replace(section, key=f"comparison-{section.key}", title=title))
    first = first_screen(result, tuple(time_and_duration(result)))
    title, *when = first.context
    return b.Report(title, " · ".join(("Performance check", *when)), (*gate_sections(result), *comparison), first)


def configuration_lines(found: Mapping[str, GateResult]) -> tuple[str, ...]:
    """Return `small: PASS: no counter rose` for each configuration."""
    return tuple(f"{name}: {result.state}: {fmt.lowered(plain(result.sentence))}" for name, result in found.items())


def configurations_report(found: Mapping[str, GateResult], state: str) -> b.Report:
    """Return the page of several configurations: their verdicts, then the sections of each."""
    judged = {name: JUDGED.get(result.state, "open") for name, result in found.items()}
    rows = [
        (
            b.Cell(name),
            b.Cell(each.state, judged=judged[name]),
            b.Cell(plain(each.sentence)),
            b.Cell(each.out, code=True),
        )
        for name, each in found.items()
    ]
    columns = tuple(map(b.Column, ("configuration", "result", "why", "report")))
    sections = [
        replace(section, key=f"{name}-{section.key}", title=f"{name}: {section.title}")
        for name, result in found.items()
        if result.base.what  # else it could not be checked
        for section in gate_sections(result)
    ]
    deciding = next(name for name, result in found.items() if result.state == state)
    headline = b.Headline("", state, f": {deciding}: {fmt.lowered(plain(found[deciding].sentence))}", judged[deciding])
    first = b.FirstScreen((plural(len(found), "configuration"),), headline)
    table = b.Section("configurations", "Configurations", (b.Table("Configurations", columns, tuple(rows)),))
    return b.Report("Performance checks", plural(len(found), "configuration"), (table, *sections), first)


def time_and_duration(result: GateResult) -> Iterator[str]:
    """Yield '2026-11-20 10:30 UTC' and 'took 1 min 01 s', as far as they are known."""
    if result.created_at:
        yield local_time(result.created_at)
    took = fmt.duration(result.seconds)
    if took != units.NOT_MEASURED:
        yield f"took {took}"


def gate_sections(result: GateResult) -> tuple[b.Section, ...]:
    """Return the sections of the check, the verdict first."""
    sections = [_verdict(result)]
    if result.counters_state is not None:
        sections.append(_counters(result))
    if result.throughput is not None:
        sections.append(_throughput(result, result.throughput))
    return (*sections, _method(result))


# ---------------------------------------------------------------- verdict


def _verdict(result: GateResult) -> b.Section:
    """Return causes, all lines, and warnings: what the first screen has no room for."""
    # those of a FAIL first
    ordered = sorted(result.counters, key=lambda line: line.state == PASS)
    rises = find_rises((line for line in ordered if line.state != PASS), result.hunks)
    rises += find_rises((line for line in ordered if line.state == PASS), result.hunks)
    fewer = [change for line in ordered for change in line.other_changes if change.kind is not ChangeKind.MOVED]
    blocks: tuple[b.Block, ...] = (
        *([b.Text(result.explanation)] if result.explanation and result.causes else []),
        *_items("Causes that appeared or grew", text.causes(result)),
        *_items("Lines at which counters changed", map(text.rise_sentence, rises)),
        *_items("Lines that count less, or only moved", (*map(fmt.site, fewer), *text.moved_lines(ordered))),
        *_items("Warnings", text.warnings(result)),
    )
    return b.Section("check", "Causes and lines", blocks, blocks, "code")


def _items(title: str, lines: Iterable[str]) -> list[b.Items]:
    items = tuple(lines)
    return [b.Items(items, title)] if items else []


# ---------------------------------------------------------------- counters


def _counters(result: GateResult) -> b.Section:
    reason = plain(text.reasons(result.counters_reasons))
    if not result.counters:
        missing = b.NotMeasured("Counters", reason or "no counter was compared")
        return b.Section("check-counters", "Counters", (missing,), (missing,), "device")
    is_updatable = result.mode == "baseline" and any(line.state == FAIL for line in result.counters)
    hint = [b.Text("If this is intended: --update REASON")] if is_updatable else []
    # stable: within a group the order of the result
    ordered = sorted(result.counters, key=lambda line: (line.state == PASS, not fmt.is_changed(line)))
    notable = [line for line in ordered if line.state != PASS or fmt.is_changed(line)]
    unchanged = len(ordered) - len(notable)
    caption = f"Counters per step: {result.counters_state}" + (f", {reason}" if reason else "")
    brief: list[b.Block] = [_counter_table(result, notable, caption) if notable else b.Text(caption)]
    others = f"{unchanged:,} other{'s' * (unchanged != 1)}" if notable else f"All {unchanged:,}"
    brief += [b.Text(f"{others} unchanged.")] if unchanged else []
    table = _counter_table(result, ordered, caption)
    return b.Section("check-counters", "Counters", (*hint, table), (*brief, *hint), "device")


def _counter_table(result: GateResult, lines: Sequence[CounterLine], caption: str) -> b.Table:
    fields = [
        Field[CounterLine]("Counter", lambda line: b.Cell(fmt.counter_name(line), strong=line.state != PASS)),
        Field("State", lambda line: b.Cell(line.state, judged=JUDGED.get(line.state, ""))),
        Field(fmt.base_column(result), lambda line: _ends_cell(line, 0, line.before), number=True),
        Field("Candidate", lambda line: _ends_cell(line, 1, line.after), number=True),
        Field("Allowed", lambda line: b.Cell(fmt.counter_amounts(line)[2], sort=line.allowed), number=True),
    ]
    if any(line.reasons for line in lines):
        fields.append(Field("Remark", lambda line: b.Cell(text.reasons(line.reasons) or b.NOTHING)))
    return make_table(caption, fields, lines)


def _ends_cell(line: CounterLine, index: int, ends: tuple[float, float] | None) -> b.Cell:
    return b.Cell(
        fmt.counter_amounts(line)[index],
        sort=ends[1] if ends else -1.0,
        strong=index == 1 and fmt.is_changed(line),
    )


# ---------------------------------------------------------------- throughput


def _throughput(result: GateResult, speed: Throughput) -> b.Section:
    caption = speed.state + (f": {plain(text.sentence(speed.reason))}" if speed.reason else "")
    summary = _time_table(speed, caption) if speed.lines else b.Text(caption)
    figures: list[tuple[str, tuple[b.Block, ...]]] = [
        ("Slow-down of the candidate", tuple(slowdown_figure(result))),
        ("Time of a step", tuple(step_time_figure(speed))),
    ]
    columns = tuple(figure for figure in figures if figure[1])
    blocks = (summary, *([b.Group(columns)] if columns else []), *rounds_table(speed))
    return b.Section("check-throughput", "Throughput", blocks, (summary,), "time")


def _time_table(speed: Throughput, caption: str) -> b.Table:
    def change(line: TimeLine) -> b.Cell:
        if fmt.percentage(line.slowdown) is None:
            return replace(missing_cell(fmt.NOT_COMPARED), strong=True)
        return b.Cell(fmt.slower_or_faster(line.slowdown), sort=line.slowdown, strong=True)

    def bounds(line: TimeLine) -> b.Cell:
        ends = fmt.interval(line.low, line.high)
        return b.Cell(ends) if ends else missing_cell(fmt.NO_BOUND)

    fields: tuple[Field[TimeLine], ...] = (
        Field("Line", lambda line: b.Cell(line.name)),
        Field("State", lambda line: b.Cell(state := fmt.line_state(speed, line), judged=JUDGED.get(state, ""))),
        Field("Change", change, number=True),
        Field("Interval", bounds, number=True),
        Field("Rounds", lambda line: b.Cell(f"{line.rounds:,}", sort=line.rounds), number=True),
        Field(_FAIL_FROM, lambda line: percent_cell(line.smallest, fmt.NO_BOUND), number=True),
    )
    note = (
        f"{_FAIL_FROM}: from this slow-down on it would have been a FAIL with {fmt.DETECTED} probability, with this "
        "noise and these rounds."
    )
    return make_table(caption, fields, speed.lines, note)


# ---------------------------------------------------------------- method


def _method(result: GateResult) -> b.Section:
    sides = Field[SideInfo]("Side", lambda side: b.Cell("base" if side is result.base else "candidate"))
    method = [*(_COUNTING if result.counters_state is not None else ())]
    method += _MEASURING if result.throughput is not None else ()
    notes = tuple(map(text.sentence, result.notes))
    items = [b.Items(notes, "Notes")] if notes else []
    blocks: list[b.Block] = [
        b.Items((*method, *fmt.limit_sentences(result))),
        *items,
        make_table("Sides", (sides, *_SIDE_FIELDS), (result.base, result.candidate)),
    ]
    if result.machine:
        blocks.append(make_table("Machine", _FACT_FIELDS, result.machine.items()))
    return b.Section("check-method", "Method", tuple(blocks), tuple(items), "evidence")


_SIDE_FIELDS: Final = (
    Field[SideInfo]("What", lambda side: b.Cell(fmt.side_title(side))),
    Field[SideInfo]("Command", lambda side: b.Cell(side.command or b.NOTHING)),
    Field[SideInfo]("Speed, informational", lambda side: b.Cell(fmt.side_speed(side) or b.NOTHING)),
)
_FACT_FIELDS: Final = (
    Field[tuple[str, str]]("Fact", lambda fact: b.Cell(fact[0])),
    Field[tuple[str, str]]("Value", lambda fact: b.Cell(fact[1])),
)


# ---------------------------------------------------------------- figures and table of the rounds

_TONES: Final = {BASE: b.side_tone(0), CANDIDATE: b.side_tone(1)}


def step_times(measured: Round, side: str) -> list[float]:
    """Return seconds of every step of one side in a round."""
    return [step / 1e9 for block in measured.blocks if block.side == side for step in block.steps]


def slowdown_figure(result: GateResult) -> Iterator[b.IntervalChart]:
    """Draw estimates with their bounds and the rounds behind them; nothing if nothing was measured."""
    speed = result.throughput
    if speed is None:
        return
    rows = []
    for index, line in enumerate(speed.lines):
        value = fmt.percentage(line.slowdown)
        if value is not None:
            rounds = () if index else speed.round_slowdowns  # only of the typical step
            dots = tuple(dot for each in rounds if (dot := fmt.percentage(each)) is not None)
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


def step_time_figure(speed: Throughput) -> Iterator[b.Lines]:
    """Draw the step time of each side by round, which shows drifts; nothing without rounds."""
    curves = []
    for side in (BASE, CANDIDATE):
        times = [(item.number, [1e3 * step for step in step_times(item, side)]) for item in speed.rounds]
        points = [(float(number), steps) for number, steps in times if steps]
        ends = [quantiles(steps, n=4) if len(steps) > 1 else [steps[0]] * 3 for _, steps in points]
        if points:
            numbers, medians = zip(*((number, median(steps)) for number, steps in points), strict=True)
            low, _, high = zip(*ends, strict=True)
            curves.append(b.Curve(side, _TONES[side], numbers, medians, low, high))
    if curves:
        note, panel = "Bars: the middle half of a side's steps.", b.Panel("", tuple(curves))
        yield b.Lines("Median step of each side, round by round", "round", "ms", (panel,), note=note, numbered=True)


def rounds_table(speed: Throughput) -> Iterator[b.Table]:
    """Yield the start order, step times, slow-down and conditions of every round; nothing without rounds."""
    if speed.rounds:
        rows = zip(speed.rounds, chain(speed.round_slowdowns, repeat(None)), strict=False)
        yield make_table("Every round", _ROUND_FIELDS, rows, _ROUNDS_NOTE)


def _step_cell(measured: Round, side: str) -> b.Cell:
    times = step_times(measured, side)
    return seconds_cell(median(times) if times else None, missing="it took no step")


def _load_cell(conditions: Conditions) -> b.Cell:
    if conditions.load is None:
        return missing_cell(fmt.NOT_REPORTED)
    cores = "" if conditions.cores is None else f"on {conditions.cores:,}"
    return b.Cell(units.significant(conditions.load, 2), cores, sort=conditions.load)


_ROUND_FIELDS: Final[tuple[Field[tuple[Round, float | None]], ...]] = (
    Field("Round", lambda row: b.Cell(f"{row[0].number}", note=row[0].kind, sort=row[0].number)),
    Field("Start order", lambda row: b.Cell(", ".join(row[0].slots))),
    Field("Base step", lambda row: _step_cell(row[0], BASE), number=True),
    Field("Candidate step", lambda row: _step_cell(row[0], CANDIDATE), number=True),
    Field("Slow-down", lambda row: percent_cell(row[1], "too few blocks"), number=True),
    Field("Load", lambda row: _load_cell(row[0].conditions), number=True),
    Field("Steal", lambda row: share_cell(row[0].conditions.steal, missing=fmt.NOT_REPORTED), number=True),
    Field("Throttled by", lambda row: b.Cell(", ".join(row[0].conditions.throttled) or b.NOTHING)),
)
_ROUNDS_NOTE: Final = (
    "Steps: medians of the round. Slow-down: of the typical step, from pairs of neighbouring blocks, as in the "
    "verdict; not the ratio of the medians. Load: runnable threads of all programs, on so many cores. Steal: share "
    "of the cores' time that other virtual machines took. Throttled by: what kept clocks low."
)


def percent_cell(slowdown: float | None, reason: str) -> b.Cell:
    """Return a slow-down in percent; missing for `reason` if it is not a number."""
    value = fmt.percentage(slowdown)
    return missing_cell(reason) if value is None else b.Cell(fmt.percent(slowdown).removesuffix("%"), "%", sort=value)
