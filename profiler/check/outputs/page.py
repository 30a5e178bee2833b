"""Shows the result of a check as sections of a report: verdict, counters, throughput, method.

The page shows all blocks; the terminal and the summary of a job show the brief ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from profiler.check.model import (
    FAIL,
    PASS,
    ChangeKind,
    CounterLine,
    GateResult,
    SideInfo,
    Throughput,
    TimeLine,
)
from profiler.check.outputs import format as fmt
from profiler.check.outputs import text
from profiler.check.outputs.figures import percent_cell, rounds_table, slowdown_figure, step_time_figure
from profiler.check.outputs.first_screen import JUDGED, first_screen, shown_places
from profiler.check.outputs.rises import find_rises
from profiler.core import units
from profiler.core.terminal import plain
from profiler.report import blocks as b
from profiler.report.build import local_time
from profiler.report.table import Field, make_table, missing_cell

_FAIL_FROM: Final = f"FAIL from ({fmt.DETECTED})"
_CHANGES_TITLE: Final = "Lines at which counters changed"
_LESS_TITLE: Final = "Lines that count less, or only moved"
_DIFF_TITLE: Final = "What the diff changed there"
_MAX_DIFFS: Final = 3
"""Parts of a diff that the verdict shows; all of them are in check.json."""
_SLOWER_TITLE: Final = "Lines that take longer"
_SHARED_TITLES: Final = ("Throughput", "Counters", "Method")
"""Titles that sections of the comparison have too."""
_GROUPS: Final = {"check": "code", "check-counters": "device", "check-throughput": "time", "check-method": "evidence"}
"""Section of the check -> the group of the page in which it stands, as those of the comparison do."""
_COUNTING: Final = ("Counters are those of measured steps, each compared with what its baseline and its limits allow.",)
_MEASURING: Final = (
    "Each round starts fresh processes of both sides, which run in short alternating blocks, the other one paused.",
    "A slow-down is how much longer the candidate takes for the same work; a gain is negative, or marked 'faster'.",
    "Intervals are two one-sided bounds, each at the confidence of one look.",
    "A FAIL is confirmed in further rounds, in which the programs start in the other order.",
)


def gate_report(result: GateResult, comparison_sections: Sequence[b.Section] = ()) -> b.Report:
    """The page: the check first, then the comparison of both sides."""
    comparison = []
    for section in comparison_sections:
        title = "Comparison" if section.key == "verdict" else section.title
        title = f"{title} of the comparison" if title in _SHARED_TITLES else title
        comparison.append(replace(section, key=f"comparison-{section.key}", title=title))
    title = f"{fmt.side_title(result.candidate)} against {fmt.reference_title(result)}"
    subtitle = " · ".join(("Performance check", *time_and_duration(result)))
    sections = (replace(section, group=_GROUPS[section.key]) for section in gate_sections(result))
    first = first_screen(result, tuple(time_and_duration(result)))
    return b.Report(title, subtitle, (*sections, *comparison), first)


def time_and_duration(result: GateResult) -> Iterator[str]:
    """'2026-11-20 10:30 UTC' and 'took 1 min 01 s', as far as they are known."""
    if result.created_at:
        yield local_time(result.created_at)
    took = fmt.duration(result.seconds)
    if took != units.NOT_MEASURED:
        yield f"took {took}"


def gate_sections(result: GateResult) -> tuple[b.Section, ...]:
    """The sections of the check, the verdict first."""
    sections = [_verdict(result)]
    if result.counters_state is not None:
        sections.append(_counters(result))
    if result.throughput is not None:
        sections.append(_throughput(result, result.throughput))
    return (*sections, _method(result))


# ---------------------------------------------------------------- verdict


def _verdict(result: GateResult) -> b.Section:
    explanation = [b.Text(each) for each in (*text.unwritten(result), result.explanation) if each]
    causes = [b.Items(text.causes(result), "Causes that appeared or grew")] if result.causes else []
    warnings = text.warnings(result)
    items = [b.Items(warnings, "Warnings")] if warnings else []
    # those of a FAIL first
    ordered = sorted(result.counters, key=lambda line: line.state == PASS)
    rises = find_rises((line for line in ordered if line.state != PASS), result.hunks)
    rises += find_rises((line for line in ordered if line.state == PASS), result.hunks)
    sites = [b.Items(tuple(map(text.rise_sentence, rises)), _CHANGES_TITLE)] if rises else []
    less, diffs = list(_less(ordered)), list(_diffs(result))
    slower = [b.Items(tuple(map(fmt.slower_line, result.slower_lines)), _SLOWER_TITLE)] if result.slower_lines else []
    brief: list[b.Block] = [*explanation, *causes, *slower, *sites, *diffs, *less, *items]
    blocks: list[b.Block] = [*explanation, *causes, *sites, *less, *items]
    return b.Section("check", "Causes and lines", tuple(blocks), brief=tuple(brief))


def _diffs(result: GateResult) -> Iterator[b.Items]:
    """The parts of the diff that have the first lines."""
    found = [place for place in shown_places(result) if place.diff]
    for number, place in enumerate(found[:_MAX_DIFFS]):
        yield b.Items((f"at {place.path}",), "" if number else _DIFF_TITLE, "\n".join(place.diff))


def _less(lines: Sequence[CounterLine]) -> Iterator[b.Items]:
    """The lines that count less or are gone, and how many only moved."""
    fewer = [change for line in lines for change in line.other_changes if change.kind is not ChangeKind.MOVED]
    items = (*map(fmt.site, fewer), *text.moved_lines(lines))
    if items:
        yield b.Items(items, _LESS_TITLE)


def _slowdown_cell(line: TimeLine) -> b.Cell:
    if fmt.percentage(line.slowdown) is None:
        return missing_cell("no round could be compared")
    return b.Cell(fmt.slower_or_faster(line.slowdown), sort=line.slowdown)


def _state_cell(state: str) -> b.Cell:
    return b.Cell(state, judged=JUDGED.get(state, ""))


# ---------------------------------------------------------------- counters


def _counters(result: GateResult) -> b.Section:
    if not result.counters:
        reason = text.reasons(result.counters_reasons) or "no counter was compared"
        missing = b.NotMeasured("Counters", reason)
        return b.Section("check-counters", "Counters", (missing,), brief=(missing,))
    reason = plain(text.reasons(result.counters_reasons))
    is_updatable = result.mode == "baseline" and any(line.state == FAIL for line in result.counters)
    hint = [b.Text("If this is intended: --update REASON")] if is_updatable else []
    # stable: within a group the order of the result
    ordered = sorted(result.counters, key=lambda line: (line.state == PASS, not fmt.is_changed(line)))
    notable = [line for line in ordered if line.state != PASS or fmt.is_changed(line)]
    unchanged = len(ordered) - len(notable)
    title = "Counters per step"
    summary = f"{title}: {result.counters_state}" + (f", {reason}" if reason else "")
    brief: list[b.Block] = [_counter_table(result, notable, summary)] if notable else [b.Text(summary)]
    others = f"{unchanged:,} other{'s' * (unchanged != 1)}" if notable else f"All {unchanged:,}"
    brief += [b.Text(f"{others} unchanged.")] if unchanged else []
    above = [b.Text(f"{result.counters_state}: {reason}")] if reason else []
    blocks: list[b.Block] = [*above, *hint, _counter_table(result, ordered, title)]
    return b.Section("check-counters", "Counters", tuple(blocks), brief=(*brief, *hint))


def _counter_table(result: GateResult, lines: Sequence[CounterLine], caption: str) -> b.Table:
    fields = [
        Field[CounterLine]("Counter", lambda line: b.Cell(fmt.counter_name(line), strong=line.state != PASS)),
        Field("State", lambda line: _state_cell(line.state)),
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
    reason = plain(text.sentence(speed.reason)) if speed.reason else ""
    blocks: list[b.Block] = [b.Text(f"{speed.state}: {reason}")] if reason else []
    summary = f"Throughput: {speed.state}" + (f", {reason}" if reason else "")
    brief: list[b.Block] = [_time_table(result, speed, summary)] if speed.lines else [b.Text(summary)]
    if speed.lines:
        blocks.append(_time_table(result, speed, "What the rounds show"))
    figures: list[tuple[str, tuple[b.Block, ...]]] = [
        ("Slow-down of the candidate", tuple(slowdown_figure(result))),
        ("Time of a step", tuple(step_time_figure(speed))),
    ]
    if columns := tuple(figure for figure in figures if figure[1]):
        blocks.append(b.Group(columns))
    blocks += rounds_table(speed)
    missing = (b.NotMeasured("Throughput", "no round was run"),)
    return b.Section("check-throughput", "Throughput", tuple(blocks) or missing, brief=tuple(brief))


def _time_table(result: GateResult, speed: Throughput, caption: str) -> b.Table:
    fields: tuple[Field[TimeLine], ...] = (
        Field("Line", lambda line: b.Cell(line.name)),
        Field("State", lambda line: _state_cell(fmt.line_state(speed, line))),
        Field("Change", lambda line: replace(_slowdown_cell(line), strong=True), number=True),
        Field("Interval", _interval_cell, number=True),
        Field("Rounds", lambda line: b.Cell(f"{line.rounds:,}", sort=line.rounds), number=True),
        Field(_FAIL_FROM, lambda line: percent_cell(line.smallest, "too few rounds for a bound"), number=True),
        Field("What would settle it", lambda line: b.Cell(fmt.remaining_effort(result, line) or b.NOTHING)),
    )
    note = (
        f"{_FAIL_FROM}: from this slow-down on it would have been a FAIL with {fmt.DETECTED} probability, with this "
        "noise and these rounds."
    )
    return make_table(caption, fields, speed.lines, note)


def _interval_cell(line: TimeLine) -> b.Cell:
    ends = fmt.interval(line.low, line.high)
    return b.Cell(ends) if ends else missing_cell("too few rounds for a bound")


# ---------------------------------------------------------------- method


def _method(result: GateResult) -> b.Section:
    sides = Field[SideInfo]("Side", lambda side: b.Cell("base" if side is result.base else "candidate"))
    method = [*(_COUNTING if result.counters_state is not None else ())]
    method += _MEASURING if result.throughput is not None else ()
    notes = text.notes(result)
    items = [b.Items(notes, "Notes")] if notes else []
    blocks: list[b.Block] = [
        b.Items((*method, *fmt.limit_sentences(result))),
        *items,
        make_table("Sides", (sides, *_SIDE_FIELDS), (result.base, result.candidate)),
    ]
    if result.machine:
        blocks.append(make_table("Machine", _FACT_FIELDS, result.machine.items()))
    return b.Section("check-method", "Method", tuple(blocks), brief=tuple(items))


_SIDE_FIELDS: Final = (
    Field[SideInfo]("What", lambda side: b.Cell(fmt.side_title(side))),
    Field[SideInfo]("Command", lambda side: b.Cell(side.command or b.NOTHING)),
    Field[SideInfo]("Speed, informational", lambda side: b.Cell(fmt.side_speed(side) or b.NOTHING)),
)
_FACT_FIELDS: Final = (
    Field[tuple[str, str]]("Fact", lambda fact: b.Cell(fact[0])),
    Field[tuple[str, str]]("Value", lambda fact: b.Cell(fact[1])),
)
