"""The result of a check as sections of a report: verdict, counters, throughput, method.

The page shows all blocks; the terminal and the summary of a job show the brief ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from profiler.check.model import FAIL, INCONCLUSIVE, PASS, Change, CounterLine, GateResult, Throughput, TimeLine
from profiler.check.outputs import format as fmt
from profiler.check.outputs import text
from profiler.check.outputs.figures import percent_cell, rounds_table, slowdown_figure, step_time_figure
from profiler.core import units
from profiler.report.blocks import (
    NOTHING,
    Block,
    Callout,
    Cell,
    Column,
    Group,
    Items,
    NotMeasured,
    Report,
    Section,
    Stat,
    Stats,
    Table,
    Text,
)
from profiler.report.build import local_time
from profiler.report.table import missing_cell, short_path

JUDGED: Final = {PASS: "good", INCONCLUSIVE: "open", FAIL: "bad"}
_FAIL_FROM: Final = f"FAIL from ({fmt.POWER})"
_CHANGES_TITLE: Final = "Lines at which counters changed"
_SHARED_TITLES: Final = ("Throughput", "Counters", "Method")
"""Titles that sections of the comparison have too."""
_COUNTING: Final = ("Counters are those of measured steps, each compared with what its baseline and its limits allow.",)
_MEASURING: Final = (
    "Each round starts fresh processes of both sides, which run in short alternating blocks, the other one paused.",
    "A slow-down is how much longer the candidate takes for the same work; a gain is negative, or marked 'faster'.",
    "Intervals are two one-sided bounds, each at the confidence of one look.",
    "A FAIL is confirmed in further rounds, with the start order swapped and a second copy of the base as control.",
)


def gate_report(result: GateResult, comparison_sections: Sequence[Section] = ()) -> Report:
    """The page: the check first, then the comparison of both sides."""
    comparison = []
    for section in comparison_sections:
        title = "Comparison" if section.title == "Verdict" else section.title
        title = f"{title} of the comparison" if title in _SHARED_TITLES else title
        comparison.append(replace(section, key=f"comparison-{section.key}", title=title))
    title = f"{fmt.side_title(result.candidate)} against {fmt.reference_title(result)}"
    subtitle = " · ".join(("Performance check", *time_and_duration(result)))
    return Report(title, subtitle, (*gate_sections(result), *comparison))


def time_and_duration(result: GateResult) -> Iterator[str]:
    """'2026-11-20 10:30 UTC' and 'took 1 min 01 s', as far as they are known."""
    if result.created_at:
        yield local_time(result.created_at)
    took = fmt.duration(result.seconds)
    if took != units.NOT_MEASURED:
        yield f"took {took}"


def gate_sections(result: GateResult) -> tuple[Section, ...]:
    """The sections of the check, the verdict first."""
    sections = [_verdict(result)]
    if result.counters_state is not None:
        sections.append(_counters(result))
    if result.throughput is not None:
        sections.append(_throughput(result, result.throughput))
    return (*sections, _method(result))


# ---------------------------------------------------------------- verdict


def _verdict(result: GateResult) -> Section:
    callout = Callout(text.headline(result), "verdict", result.state, judged=JUDGED.get(result.state, ""))
    explanation = [Text(result.explanation)] if result.explanation else []
    warnings = text.warnings(result)
    items = [Items(warnings, "Warnings")] if warnings else []
    changes = _changes(result)
    table, sites = [], []
    if changes:
        columns = (
            Column("Line"),
            Column("Change, per step"),
            Column("Before", number=True),
            Column("Now", number=True),
        )
        table = [Table(_CHANGES_TITLE, columns, tuple(map(_change_row, changes)))]
        sites = [Items(tuple(map(fmt.site, changes)), _CHANGES_TITLE)]
    blocks: list[Block] = [callout, *explanation, Stats(tuple(_stats(result))), *table, *items]
    return Section("check", "Check", tuple(blocks), brief=(callout, *explanation, *sites, *items))


def _changes(result: GateResult) -> list[Change]:
    """Those of a FAIL first."""
    return [change for line in sorted(result.counters, key=lambda line: line.state == PASS) for change in line.changes]


def _stats(result: GateResult) -> Iterator[Stat]:
    speed = result.throughput
    if speed is not None:
        for line in speed.lines:
            cell = replace(_slowdown_cell(line), note=fmt.interval(line.low, line.high))
            yield Stat(f"Slow-down, {line.name}", cell)
        if speed.lines:
            yield from _sensitivity(speed.lines[0], fmt.line_state(speed, speed.lines[0]))
    if result.counters_state is not None:
        failed = sum(line.state == FAIL for line in result.counters)
        cell = Cell(f"{failed}", f"of {len(result.counters)}", sort=failed)
        yield Stat("Counters that fail", cell if result.counters else missing_cell("nothing was compared"))
    took = fmt.duration(result.seconds)
    yield Stat("Took", missing_cell("no duration") if took == units.NOT_MEASURED else Cell(took))


def _sensitivity(line: TimeLine, state: str) -> Iterator[Stat]:
    """What a PASS rules out, or what would have been a FAIL; nothing for a FAIL."""
    limit = fmt.ruled_out(line) if state == PASS else None
    if limit is not None:
        note = fmt.detectable(line, state)[-1]
        yield Stat("Ruled out: slower by more than", Cell(limit.removesuffix("%"), "%", sort=line.high, note=note))
    elif state != FAIL:
        cell = percent_cell(line.smallest, "too few rounds")
        yield Stat(_FAIL_FROM, cell if cell.missing else replace(cell, note=line.name))


def _slowdown_cell(line: TimeLine) -> Cell:
    if fmt.percentage(line.slowdown) is None:
        return missing_cell("no round could be compared")
    return Cell(fmt.slower_or_faster(line.slowdown), sort=line.slowdown)


def _state_cell(state: str) -> Cell:
    return Cell(state, judged=JUDGED.get(state, ""))


# ---------------------------------------------------------------- counters


def _counters(result: GateResult) -> Section:
    if not result.counters:
        reason = text.reasons(result.counters_reasons) or "no counter was compared"
        missing = NotMeasured("Counters", reason)
        return Section("check-counters", "Counters", (missing,), brief=(missing,))
    reason = text.unstated_counters_reason(result)
    is_updatable = result.mode == "baseline" and any(line.state == FAIL for line in result.counters)
    hint = [Text("If this is intended: --update --reason TEXT")] if is_updatable else []
    # stable: within a group the order of the result
    ordered = sorted(result.counters, key=lambda line: (line.state == PASS, not fmt.is_changed(line)))
    notable = [line for line in ordered if line.state != PASS or fmt.is_changed(line)]
    unchanged = len(ordered) - len(notable)
    title = "Counters per step"
    summary = f"{title}: {result.counters_state}" + (f", {reason}" if reason else "")
    brief: list[Block] = [_counter_table(result, notable, summary)] if notable else [Text(summary)]
    others = f"{unchanged:,} other{'s' * (unchanged != 1)}" if notable else f"All {unchanged:,}"
    brief += [Text(f"{others} unchanged.")] if unchanged else []
    above = [Text(f"{result.counters_state}: {reason}")] if reason else []
    blocks: list[Block] = [*above, *hint, _counter_table(result, ordered, title)]
    return Section("check-counters", "Counters", tuple(blocks), brief=(*brief, *hint))


def _counter_table(result: GateResult, lines: Sequence[CounterLine], caption: str) -> Table:
    titles = (fmt.base_column(result), "Candidate", "Allowed")
    columns = (Column("Counter"), Column("State"), *(Column(title, number=True) for title in titles), Column("Remark"))
    width = len(columns) if any(line.reasons for line in lines) else len(columns) - 1
    return Table(caption, columns[:width], tuple(_counter_row(line)[:width] for line in lines))


def _counter_row(line: CounterLine) -> tuple[Cell, ...]:
    before, after, allowed = fmt.counter_amounts(line)
    return (
        Cell(fmt.counter_title(line), strong=line.state != PASS),
        _state_cell(line.state),
        Cell(before, sort=line.before[1] if line.before else -1.0),
        Cell(after, sort=line.after[1] if line.after else -1.0, strong=fmt.is_changed(line)),
        Cell(allowed, sort=line.allowed),
        Cell(text.reasons(line.reasons) or NOTHING),
    )


def _change_row(change: Change) -> tuple[Cell, ...]:
    values = (change.before, change.after)
    file = short_path(change.file) or "an unknown line"
    return (
        Cell(
            f"{file}:{change.line}" if change.line > 0 else file,
            note=fmt.function_and_operation(change).strip(" ()"),
            title=fmt.location(change),
            code=True,
        ),
        Cell(fmt.rise(change).removesuffix(" per step"), strong=True),
        *(Cell(amount, sort=value) for amount, value in zip(fmt.amounts(values, change.counter), values, strict=True)),
    )


# ---------------------------------------------------------------- throughput


def _throughput(result: GateResult, speed: Throughput) -> Section:
    reason = text.unstated_speed_reason(result)
    above = [Text(f"{speed.state}: {reason}")] if reason else []
    summary = f"Throughput: {speed.state}" + (f", {reason}" if reason else "")
    brief: list[Block] = [_brief_time_table(result, speed, summary)] if speed.lines else [Text(summary)]
    if speed.control is not None and speed.reason is None:
        control = Text(f"The base against a second copy of itself: {fmt.slower_or_faster(speed.control)}.")
        above.append(control)
        brief.append(control)
    blocks: list[Block] = [*above]
    if speed.lines:
        blocks.append(_time_table(result, speed))
    figures: list[tuple[str, tuple[Block, ...]]] = [
        ("Slow-down of the candidate", tuple(slowdown_figure(result))),
        ("Time of a step", tuple(step_time_figure(speed))),
    ]
    if columns := tuple(figure for figure in figures if figure[1]):
        blocks.append(Group(columns))
    blocks += rounds_table(speed)
    missing = (NotMeasured("Throughput", "no round was run"),)
    return Section("check-throughput", "Throughput", tuple(blocks) or missing, brief=tuple(brief))


def _time_table(result: GateResult, speed: Throughput) -> Table:
    columns = (
        Column("Line"),
        Column("State"),
        Column("Slow-down", number=True),
        Column("Interval", number=True),
        Column("Rounds", number=True),
        Column(_FAIL_FROM, number=True),
        Column("What would settle it"),
    )
    rows = tuple(
        (
            *_time_cells(speed, line),
            percent_cell(line.smallest, "too few rounds for a bound"),
            Cell(fmt.remaining_effort(result, line) or NOTHING),
        )
        for line in speed.lines
    )
    note = (
        f"{_FAIL_FROM}: from this slow-down on it would have been a FAIL with {fmt.POWER} probability, with this "
        "noise and these rounds."
    )
    return Table("What the rounds show", columns, rows, note)


def _brief_time_table(result: GateResult, speed: Throughput, caption: str) -> Table:
    columns = (
        Column("Line"),
        Column("State"),
        Column("Slow-down", number=True),
        Column("Interval", number=True),
        Column("Rounds", number=True),
    )
    notes = []
    for line in speed.lines:
        effort = fmt.remaining_effort(result, line)
        parts = [*fmt.detectable(line, fmt.line_state(speed, line)), *([f"to settle it: {effort}"] if effort else [])]
        if parts:
            notes.append(f"{line.name}: {'; '.join(parts)}.")
    rows = tuple(_time_cells(speed, line) for line in speed.lines)
    return Table(caption, columns, rows, " ".join(notes))


def _time_cells(speed: Throughput, line: TimeLine) -> tuple[Cell, ...]:
    ends = fmt.interval(line.low, line.high)
    return (
        Cell(line.name),
        _state_cell(fmt.line_state(speed, line)),
        replace(_slowdown_cell(line), strong=True),
        Cell(ends) if ends else missing_cell("too few rounds for a bound"),
        Cell(f"{line.rounds:,}", sort=line.rounds),
    )


# ---------------------------------------------------------------- method


def _method(result: GateResult) -> Section:
    columns = (Column("Side"), Column("What"), Column("Command"), Column("Speed, gates nothing"))
    rows = tuple(
        (Cell(name), Cell(fmt.side_title(side)), Cell(side.command or NOTHING), Cell(fmt.side_speed(side) or NOTHING))
        for name, side in (("base", result.base), ("candidate", result.candidate))
    )
    method = [*(_COUNTING if result.counters_state is not None else ())]
    method += _MEASURING if result.throughput is not None else ()
    notes = text.notes(result)
    items = [Items(notes, "Notes")] if notes else []
    blocks: list[Block] = [Items((*method, *fmt.limit_sentences(result))), *items, Table("Sides", columns, rows)]
    if result.machine:
        facts = tuple((Cell(name), Cell(value)) for name, value in result.machine.items())
        blocks.append(Table("Machine", (Column("Fact"), Column("Value")), facts))
    return Section("check-method", "Method", tuple(blocks), brief=tuple(items))
