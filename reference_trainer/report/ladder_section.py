"""What each cure gives: alone, on top of those before it, and on top of all others; and which of them carried it."""

from __future__ import annotations

from collections.abc import Iterator

from profiler.analyse.model import Ratio
from profiler.core.facts import HOST_DEVICE
from profiler.report.blocks import (
    Block,
    Callout,
    Cell,
    Column,
    Items,
    NotMeasured,
    Section,
    Stair,
    Table,
    Text,
    Waterfall,
)
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput
from profiler.report.table import factor, measure_cell, phrase, ratio_cell, ratio_text
from profiler.report.text import NO_REASON, describe
from reference_trainer.report.ladder import Cure, Ladder, LadderRow, comparison_ladder, gain, listed
from reference_trainer.report.ladder_json import ladder_json

TITLE = "The ladder of cures"
_CARRIERS = 3
"""Cures that the first sentence names as carrying the gain."""
_COLUMNS = (
    Column("Cure"),
    Column("Alone", number=True),
    Column("On top of those before it", number=True),
    Column("On top of all others", number=True),
    Column("Tried together with"),
    Column("Rule (planned)"),
)
_NOTE = (
    "{}, with 95% intervals. Alone: over as-found. On top of all others: the full set over the full set "
    "without this cure. What a cure needs came along with it, and what needs it was left out with it. "
    "Rules, which are to find what a cure removes in any program, are planned: none is written yet."
)


def build(report_input: ReportInput) -> Section | None:
    """The sentence, the waterfall, the table; then what does other work and what is not available."""
    ladder = comparison_ladder(report_input.comparison)
    if ladder is None:
        return None
    found = ladder.cures()
    warning = _interrupted(ladder)
    if not found:
        reason = "no round was complete" if ladder.interrupted else "the ladder has no row of a cure"
        return Section(
            "ladder", TITLE, (*warning, NotMeasured("what each cure gives", reason), *_rest(report_input, ladder))
        )
    speed = report_input.rate_phrase("tokens_per_s")
    sentence = Text(said(found, ladder.rounds, speed))
    falls = waterfall(report_input, ladder)
    table = Table(
        "What each cure gives", _COLUMNS, tuple(_row(cure) for cure in found), _NOTE.format(speed.capitalize())
    )
    first: tuple[Block, ...] = (*warning, sentence, falls)
    return Section("ladder", TITLE, (*first, table, *_rest(report_input, ladder)), brief=first)


def _interrupted(ladder: Ladder) -> tuple[Callout, ...]:
    if not ladder.interrupted:
        return ()
    rounds = f"{ladder.rounds} round{'s' * (ladder.rounds != 1)}" if ladder.rounds else "no round"
    were = "were" if ladder.rounds > 1 else "was"
    return (Callout(f"Interrupted: {rounds} of the ladder {were} complete, fewer than asked for.", "warning", "Doubt"),)


def said(found: tuple[Cure, ...], rounds: int, speed: str = "tokens a second") -> str:
    """What the ladder shows: the effects of leaving out, then what was seen to slow down where it was added."""
    return _left_out(found, rounds, speed) + _slower(found)


def _left_out(found: tuple[Cure, ...], rounds: int, speed: str) -> str:
    """Which cures carried the gain by what their leaving out costs, and which could not be told from no effect."""
    known = sorted((c for c in found if c.on_top.value is not None), key=lambda cure: -(cure.on_top.value or 0.0))
    if not known:
        return f"What each cure gives on top of the others was not measured: {_reason(found)}."
    sure = [cure for cure in known if cure.on_top.low is not None]
    carriers = [cure for cure in known if _clear(cure, faster=True)][:_CARRIERS]
    same = [cure.fix for cure in sure if not cure.on_top.different]
    if carriers:
        parts = [f"Left out one at a time, {_effect(carriers[0])} costs most {speed}" + _then(carriers[1:])]
    elif not sure:
        largest = listed(_effect(cure) for cure in known[:_CARRIERS])
        few = "one round" if rounds == 1 else "so few rounds"
        return f"With {few} no effect can be told from chance; left out one at a time, the largest: {largest}."
    elif len(same) == len(found):
        return (
            f"Left out one at a time, none of the {len(same)} cures could be told from no effect on this machine, "
            f"with {rounds} rounds."
        )
    else:
        parts = ["Left out one at a time, no cure was seen to give anything"]
    if same:
        parts.append(f"{listed(same)} could not be told from no effect on this machine")
    worse = [cure for cure in known if _clear(cure, faster=False)]
    if worse:
        parts.append(f"the full set is slower with {listed(f'{c.fix} ({_times(c)})' for c in worse)}")
    absent = [cure.fix for cure in found if cure.on_top.value is None]
    if absent:
        parts.append(f"not measured: {listed(absent)}")
    return "; ".join(parts) + "."


def _slower(found: tuple[Cure, ...]) -> str:
    """Cures whose interval lies below 1 on top of those before them, or alone over as-found."""
    places = (
        ("where it was added", [(cure.fix, cure.added) for cure in found]),
        ("alone, over as-found", [(cure.fix, cure.alone) for cure in found]),
    )
    parts = []
    for where, rows in places:
        seen = [(fix, ratio) for fix, row in rows if (ratio := gain(row)).high is not None and ratio.high < 1]
        if seen:
            parts.append(f"slower {where}: " + listed(f"{fix} ({_interval(ratio)})" for fix, ratio in seen))
    return f" S{parts[0][1:]}{''.join(f'; {part}' for part in parts[1:])}." if parts else ""


def _interval(ratio: Ratio) -> str:
    ends = " to ".join(factor(end)[0] for end in (ratio.low, ratio.high) if end is not None)
    return f"{ratio_text(ratio.value or 0.0)}, 95% {ends}"


def _then(cures_after: list[Cure]) -> str:
    return f", then {listed(map(_effect, cures_after))}" if cures_after else ""


def _clear(cure: Cure, *, faster: bool) -> bool:
    value = cure.on_top.value
    return cure.on_top.different and value is not None and (value > 1) == faster


def _effect(cure: Cure) -> str:
    """A cure, how many had to go with it, and what the set gains by them."""
    also = len(cure.without.also) if cure.without else 0
    others = f", with the {'one' if also == 1 else also} that need{'s' * (also == 1)} it" if also else ""
    return f"{cure.fix} ({_times(cure)}{others})"


def _times(cure: Cure) -> str:
    return ratio_text(cure.on_top.value or 0.0)


def _reason(found: tuple[Cure, ...]) -> str:
    return next((describe(cure.on_top.reason) for cure in found if cure.on_top.reason), NO_REASON)


def _row(cure: Cure) -> tuple[Cell, ...]:
    together = []
    if cure.alone and cure.alone.also:
        together.append(f"alone: {listed(cure.alone.also)}")
    if cure.without and cure.without.also:
        together.append(f"left out: {listed(cure.without.also)}")
    return (
        Cell(cure.fix, note=_removes(cure.removes), strong=True),
        *(ratio_cell(gain(row)) for row in (cure.alone, cure.added, cure.without)),
        Cell("; ".join(together)),
        Cell(cure.rule),
    )


def _rest(report_input: ReportInput, ladder: Ladder) -> tuple[Block, ...]:
    """Rows that are no like-for-like ratio, and cures that cannot run here."""
    blocks: list[Block] = []
    others = ladder.of_kind("instead", "work")
    if others:
        sides = report_input.sides
        fixed, speed = sides[-1].label, report_input.rate_phrase("tokens_per_s")
        columns = (Column("What"), Column(speed.capitalize(), number=True), Column(f"Over {fixed}", number=True))
        why = " ".join(f"{row.label}: {_why(row, speed)}." for row in others)
        note = f"These rows do other work in a step than those above: no ratio of theirs is like for like. {why}"
        blocks.append(Table("Not like for like", columns, tuple(map(_other, others)), note))
    if ladder.unavailable:
        items = tuple(f"{name}: {why or 'no reason was recorded'}" for name, why in ladder.unavailable)
        blocks.append(Items(items, f"Not available on {on_device(report_input)}"))
    return tuple(blocks)


def _removes(cost: str) -> str:
    """The cost that a fix removes, marked as such: readers took it for what the fix does."""
    return f"removes: {cost}" if cost else ""


def _why(row: LadderRow, speed: str) -> str:
    """Why no ratio of a row is like for like."""
    if row.kind == "work":
        return f"{describe(row.gain.reason) or 'does other work'}; its {speed} are held against nothing"
    place = f"in place of {listed(row.also)}; " if row.also else ""
    return f"{place}what was done before the run began is in none of its steps"


def _other(row: LadderRow) -> tuple[Cell, ...]:
    ratio = Cell("no ratio") if row.kind == "work" else ratio_cell(row.gain)
    speed = measure_cell(row.measure("tokens_per_s"), spread=True, bare=True)
    return Cell(row.label, note=_removes(row.removes), strong=True), speed, ratio


def waterfall(report_input: ReportInput, ladder: Ladder) -> Waterfall | NotMeasured:
    """Every level is as-found's median times a ratio paired by rounds, so that lengths and factors agree."""
    base = ladder.baseline
    start = base.measure("tokens_per_s") if base else None
    if base is None or start is None or not start.value:
        reason = describe(start.reason) if start else "the ladder has no row of as-found"
        return NotMeasured("the waterfall of the cures", reason or "as-found did no work that it counted")
    cell = measure_cell(start, spread=True)
    stairs = [
        Stair(
            base.label,
            None,
            start.value,
            start.low,
            start.high,
            phrase(start.value, start.unit),
            f"runs {cell.note}" if cell.note else "",
            "start",
        )
    ]
    climbed = ladder.of_kind("cumulative")
    stairs += _climb(climbed, start.value)
    if climbed and climbed[-1].total.value:
        stairs.append(_whole(report_input, climbed[-1].total, len(climbed), start.value))
    rounds = f"{ladder.rounds} interleaved round{'s' * (ladder.rounds != 1)}"
    note = (
        f"Measured on {on_device(report_input)} in {rounds}. Each bar is one more cure over those before it. Levels "
        f"are the median of {base.label} times the factors, not medians of their own; "
        "the thin lines are 95% intervals, without a cap where they go on. The axis is logarithmic: "
        "equal lengths are equal factors."
    )
    words = report_input.rate_phrase("tokens_per_s").capitalize()
    return Waterfall(f"{words}, one cure after the other", start.unit, tuple(stairs), note)


def _climb(rows: tuple[LadderRow, ...], base: float) -> Iterator[Stair]:
    """A step for each row, from the level that the row before it reached."""
    level: float | None = base
    for row in rows:
        end = base * row.total.value if row.total.value else None
        if row.gain.value is None or end is None:
            reason = describe(row.gain.reason or row.total.reason)
            yield Stair(row.label, None, end, None, None, "not measured", reason, "unknown")
        else:
            low, high = (level * x if level and x else None for x in (row.gain.low, row.gain.high))
            factor = ratio_cell(row.gain)
            yield Stair(
                row.label,
                level,
                end,
                low,
                high,
                factor.text + factor.unit,
                factor.interval,
                _kind(row.gain),
                conclusion=factor.note,
            )
        level = end


def _kind(found: Ratio) -> str:
    if found.low is None or found.value is None:
        return "unknown"
    if not found.different:
        return "same"
    return "gain" if found.value > 1 else "loss"


def _whole(report_input: ReportInput, total: Ratio, count: int, base: float) -> Stair:
    cell = ratio_cell(total)
    label = report_input.sides[-1].label if len(report_input.sides) > 1 else "all of them"
    end, low, high = (base * value if value else None for value in (total.value, total.low, total.high))
    note = f"all {count} cures" if count > 1 else "the one cure"
    return Stair(label, base, end, low, high, cell.text + cell.unit, cell.interval, "total", note, cell.note)


def on_device(report_input: ReportInput) -> str:
    """The device in a sentence."""
    named = report_input.devices
    return f"the {named}" if named == HOST_DEVICE else named


PLUGIN = SectionPlugin("ladder", TITLE, 22, build, ladder_json)
