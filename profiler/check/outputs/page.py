"""A gate's result as sections of a report: verdict, counters and their lines, rounds, how it was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from profiler.check.model import FAIL, INCONCLUSIVE, PASS, Change, CounterLine, GateResult, Throughput, TimeLine
from profiler.check.outputs import said, words
from profiler.check.outputs import text as sentences
from profiler.check.outputs.figures import drift, slowdowns
from profiler.check.outputs.rounds_table import rounds_table
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
_FAIL_FROM: Final = f"FAIL from ({said.POWER})"
_OF_ROUNDS: Final[tuple[str, ...]] = (
    "A round is a fresh pair of programs that take turns; one runs at a time, the other stands still.",
    "A slow-down is by how much longer the candidate takes for the same work; a gain is negative, or said as 'faster'.",
    "Intervals are two one-sided bounds, each at the confidence of one look.",
    "FAIL needs rounds of their own that confirm it, with slots swapped and a second copy of the base as control.",
)
_OF_COUNTERS: Final[tuple[str, ...]] = (
    "Counters are those of measured steps, each compared with what its baseline and limits allow.",
)


def gate_report(result: GateResult, comparison_sections: Sequence[Section] = ()) -> Report:
    """The page: the gate first, then the comparison of both sides."""
    sections = (*gate_sections(result), *_retitled(comparison_sections))
    date = f" · {local_time(result.created_at)}" if result.created_at else ""
    title = f"{said.side(result.candidate)} against {said.held_against(result)}"
    return Report(title, f"Performance check{date}", sections)


def _retitled(sections: Sequence[Section]) -> Iterator[Section]:
    """Sections of the comparison, told apart from the gate's by title and anchor."""
    own = Counter({"Throughput": 1, "Counters": 1, "Method": 1})
    for section in sections:
        title = "Comparison" if section.title == "Verdict" else section.title
        title = f"{title} of the comparison" if own[title] else title
        yield replace(section, key=f"comparison-{section.key}", title=title)


def gate_sections(result: GateResult) -> tuple[Section, ...]:
    """What the gate has to say, the verdict first."""
    sections = [_verdict(result)]
    if result.counters_state is not None:
        sections.append(_counters(result))
    if result.throughput is not None:
        sections.append(_throughput(result, result.throughput))
    return (*sections, _method(result))


def _verdict(result: GateResult) -> Section:
    callout = Callout(said.headline(result), "verdict", result.state, judged=JUDGED.get(result.state, ""))
    blocks: list[Block] = [callout]
    blocks += [Text(result.explanation)] if result.explanation else []
    blocks.append(Stats(tuple(_stats(result))))
    changes = _changes(result)
    blocks += [changes] if changes else []
    if warnings := sentences.warnings(result):
        blocks.append(Items(warnings, "Warnings"))
    return Section("check", "Check", tuple(blocks), brief=(callout,))


def _stats(result: GateResult) -> Iterator[Stat]:
    """The slow-downs, and how many counters rose."""
    lines = result.throughput.lines if result.throughput is not None else ()
    for line in lines:
        yield Stat(f"Slow-down, {line.name}", replace(_slowdown(line), note=words.interval(line.low, line.high)))
    if result.throughput is not None and lines:
        yield from _could_see(lines[0], said.line_state(result.throughput, lines[0]))
    if result.counters_state is not None:
        bad = sum(line.state == FAIL for line in result.counters)
        known = Cell(f"{bad}", f"of {len(result.counters)}", sort=bad)
        yield Stat("Counters that fail", known if result.counters else missing_cell("nothing was compared"))
    took = words.duration(result.seconds)
    yield Stat("Took", missing_cell("no duration") if took == units.NOT_MEASURED else Cell(took))


def _could_see(line: TimeLine, state: str) -> Iterator[Stat]:
    """Of a PASS what it rules out; nothing of a FAIL, which was seen."""
    limit = said.ruled_out(line) if state == PASS else None
    if limit is not None:
        note = said.seen(line, state)[-1]
        yield Stat("Ruled out: slower by more than", Cell(limit.removesuffix("%"), "%", sort=line.high, note=note))
    elif state != FAIL:
        value = _percent(line.smallest, "too few rounds")
        yield Stat(_FAIL_FROM, value if value.missing else replace(value, note=line.name))


def _slowdown(line: TimeLine) -> Cell:
    number, _, rest = words.slowdown(line.slowdown).partition("%")
    if words.in_percent(line.slowdown) is None:
        return missing_cell("no round could be compared")
    return Cell(number, f"%{rest}", sort=line.slowdown)


def _percent(slowdown: float | None, reason: str) -> Cell:
    if words.in_percent(slowdown) is None:
        return missing_cell(reason)
    return Cell(words.percent(slowdown).removesuffix("%"), "%", sort=slowdown)


def _state(state: str) -> Cell:
    return Cell(state, judged=JUDGED.get(state, ""))


def _counters(result: GateResult) -> Section:
    columns = (
        Column("Counter"),
        Column("State"),
        Column(said.base_title(result), number=True),
        Column("Candidate", number=True),
        Column("Allowed", number=True),
        Column("Remark"),
    )
    # stable: within a kind the gate's order
    ordered = sorted(result.counters, key=lambda line: (line.state == PASS, not words.changed(line)))
    table = Table("Counters per step", columns, tuple(map(_counter, ordered)))
    if not ordered:
        blocks: tuple[Block, ...] = (
            NotMeasured("Counters", sentences.reasons(result.counters_reasons) or "no counter was compared"),
        )
    else:
        reason = sentences.untold_counters_reason(result)
        meant = said.if_meant(result)
        above = (
            *([f"{result.counters_state}: {reason}"] if reason else ()),
            *([meant[0].upper() + meant[1:]] if meant else ()),
        )
        blocks = (*map(Text, above), table)
    return Section("check-counters", "Counters", blocks)


def _counter(line: CounterLine) -> tuple[Cell, ...]:
    before, after, allowed = words.row(line)
    return (
        Cell(words.title(line), strong=line.state != PASS),
        _state(line.state),
        Cell(before, sort=line.before[1] if line.before else -1.0),
        Cell(after, sort=line.after[1] if line.after else -1.0, strong=words.changed(line)),
        Cell(allowed, sort=line.allowed),
        Cell(sentences.reasons(line.reasons) or NOTHING),
    )


def _changes(result: GateResult) -> Table | None:
    """Lines at which counters changed, those of a FAIL first."""
    found = [(line, change) for line in result.counters for change in line.changes]
    if not found:
        return None
    found.sort(key=lambda pair: pair[0].state == PASS)
    columns = (Column("Line"), Column("Change, per step"), Column("Before", number=True), Column("Now", number=True))
    rows = tuple(_change(change) for _, change in found)
    return Table("Lines at which counters changed", columns, rows)


def _change(change: Change) -> tuple[Cell, ...]:
    texts = words.amounts((change.before, change.after), change.counter)
    numbers = (Cell(text, sort=value) for text, value in zip(texts, (change.before, change.after), strict=True))
    file = short_path(change.file) or "an unknown line"
    place = f"{file}:{change.line}" if change.line > 0 else file
    inside = words.inside(change).strip(" ()")
    return (
        Cell(place, note=inside, title=words.place(change), code=True),
        Cell(words.rise(change).removesuffix(" per step"), strong=True),
        *numbers,
    )


def _throughput(result: GateResult, gate: Throughput) -> Section:
    columns = (
        Column("Line"),
        Column("State"),
        Column("Slow-down", number=True),
        Column("Interval", number=True),
        Column("Rounds", number=True),
        Column(_FAIL_FROM, number=True),
        Column("What would settle it"),
    )
    rows = tuple(_line(result, gate, line) for line in gate.lines)
    note = (
        f"{_FAIL_FROM}: from this slow-down on it would have been a FAIL with {said.POWER} probability, with this "
        "noise and these rounds."
    )
    reason = sentences.untold_speed_reason(result)
    blocks: list[Block] = [Text(f"{gate.state}: {reason}")] if reason else []
    if control := said.control(gate):
        blocks.append(Text(control))
    blocks += [Table("What the rounds say", columns, rows, note)] if rows else []
    drawn = (("Slow-down of the candidate", tuple(slowdowns(result))), ("Time of a step", tuple(drift(gate))))
    figures = tuple(column for column in drawn if column[1])
    blocks += [Group(figures)] if figures else []
    blocks += rounds_table(gate)
    return Section("check-throughput", "Throughput", tuple(blocks) or (NotMeasured("Throughput", "no round was run"),))


def _line(result: GateResult, gate: Throughput, line: TimeLine) -> tuple[Cell, ...]:
    ends = words.interval(line.low, line.high)
    return (
        Cell(line.name),
        _state(said.line_state(gate, line)),
        replace(_slowdown(line), strong=True),
        Cell(ends) if ends else missing_cell("too few rounds for a bound"),
        Cell(f"{line.rounds:,}", sort=line.rounds),
        _percent(line.smallest, "too few rounds for a bound"),
        Cell(said.more(result, line).replace(" would probably settle it", "") or NOTHING),
    )


def _method(result: GateResult) -> Section:
    sides = [("base", result.base), ("candidate", result.candidate)]
    columns = (Column("Side"), Column("What"), Column("Command"), Column("Speed, gates nothing"))
    rows = tuple(
        (Cell(name), Cell(said.side(side)), Cell(side.command or NOTHING), Cell(said.side_times(side) or NOTHING))
        for name, side in sides
    )
    facts = tuple((Cell(name), Cell(value)) for name, value in result.machine.items())
    method = _OF_COUNTERS if result.counters_state is not None else ()
    method += _OF_ROUNDS if result.throughput is not None else ()
    blocks: list[Block] = [Items((*method, *said.limits(result)))]
    blocks += [Items(sentences.notes(result), "Notes")] if result.notes else []
    blocks.append(Table("Sides", columns, rows))
    if facts:
        blocks.append(Table("Machine", (Column("Fact"), Column("Value")), facts))
    return Section("check-method", "Method", tuple(blocks))
