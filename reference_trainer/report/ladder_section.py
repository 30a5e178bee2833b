"""The section about the gain of each fix: alone, on top of those before it, and on top of all others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

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
from profiler.report.table import factor, measure_cell, missing_cell, phrase, ratio_cell, ratio_text, seconds_cell
from profiler.report.text import NO_REASON, describe, listed
from reference_trainer.report.ladder import (
    NO_PREDICTION,
    NO_RATIO,
    FixEffects,
    Ladder,
    LadderRow,
    comparison_ladder,
    gain,
)
from reference_trainer.report.ladder_json import ladder_json

TITLE = "The ladder of fixes"
_CARRIERS = 3
"""Fixes that the first sentence names as carrying the gain."""
_COLUMNS = (
    Column("Fix"),
    Column("Alone", number=True),
    Column("On top of those before it", number=True),
    Column("Predicted", number=True),
    Column("On top of all others", number=True),
    Column("Tried together with"),
)
_NOTE = (
    "{}, with 95% intervals. Alone: over as-found. On top of all others: the full set over the full set "
    "without this fix. What a fix needs came along with it, and what needs it was left out with it. "
    "The rule is the one that recognizes in any program what the fix removes. Predicted: what its finding about the "
    "program without this fix expects if all of that cost goes, with the range of all ways to predict it; several "
    "fixes of one rule share it. At least: the fix also saves Python around the calls that it merges, and time of the "
    "device, and no recording tells how much."
)


def build(report_input: ReportInput) -> Section | None:
    """Build the sentence, the waterfall and the table; then the rows that do other work and the unavailable fixes."""
    ladder = comparison_ladder(report_input.comparison)
    if ladder is None:
        return None
    effects = ladder.effects()
    warning = _interrupted(ladder)
    if not effects:
        reason = "no round was complete" if ladder.interrupted else "the ladder has no row of a fix"
        return Section(
            "ladder", TITLE, (*warning, NotMeasured("what each fix gives", reason), *_rest(report_input, ladder))
        )
    speed = report_input.rate_phrase("tokens_per_s")
    sentence = Text(summary(effects, ladder.rounds, speed))
    falls = waterfall(report_input, ladder)
    table = Table(
        "What each fix gives", _COLUMNS, tuple(_row(fix) for fix in effects), _NOTE.format(speed.capitalize())
    )
    first: tuple[Block, ...] = (*warning, sentence, falls)
    return Section("ladder", TITLE, (*first, table, *_rest(report_input, ladder)), brief=first)


def _interrupted(ladder: Ladder) -> tuple[Callout, ...]:
    if not ladder.interrupted:
        return ()
    rounds = f"{ladder.rounds} round{'s' * (ladder.rounds != 1)}" if ladder.rounds else "no round"
    were = "were" if ladder.rounds > 1 else "was"
    return (Callout(f"Interrupted: {rounds} of the ladder {were} complete, fewer than asked for.", "warning", "Doubt"),)


def summary(effects: tuple[FixEffects, ...], rounds: int, speed: str = "tokens a second") -> str:
    """Summarize the effects of leaving fixes out, then the fixes that slow down where they are added."""
    return _left_out(effects, rounds, speed) + _slower(effects)


def _left_out(effects: tuple[FixEffects, ...], rounds: int, speed: str) -> str:
    """Name the fixes without which the set is slowest, and those that cannot be told from no effect."""
    measured = sorted(
        (fix for fix in effects if fix.on_top.value is not None), key=lambda fix: -(fix.on_top.value or 0.0)
    )
    if not measured:
        return f"What each fix gives on top of the others was not measured: {_reason(effects)}."
    with_interval = [fix for fix in measured if fix.on_top.low is not None]
    carriers = [fix for fix in measured if _clear(fix, faster=True)][:_CARRIERS]
    same = [fix.fix for fix in with_interval if not fix.on_top.different]
    if carriers:
        parts = [f"Left out one at a time, {_effect(carriers[0])} costs most {speed}" + _then(carriers[1:])]
    elif not with_interval:
        largest = listed(_effect(fix) for fix in measured[:_CARRIERS])
        few_rounds = "one round" if rounds == 1 else "so few rounds"
        return f"With {few_rounds} no effect can be told from chance; left out one at a time, the largest: {largest}."
    elif len(same) == len(effects):
        return (
            f"Left out one at a time, none of the {len(same)} fixes could be told from no effect on this machine, "
            f"with {rounds} rounds."
        )
    else:
        parts = ["Left out one at a time, no fix was seen to give anything"]
    if same:
        parts.append(f"{listed(same)} could not be told from no effect on this machine")
    worse = [fix for fix in measured if _clear(fix, faster=False)]
    if worse:
        parts.append(f"the full set is slower with {listed(f'{fix.fix} ({_times(fix)})' for fix in worse)}")
    absent = [fix.fix for fix in effects if fix.on_top.value is None]
    if absent:
        parts.append(f"not measured: {listed(absent)}")
    return "; ".join(parts) + "."


def _slower(effects: tuple[FixEffects, ...]) -> str:
    """Name the fixes whose interval lies below 1 on top of those before them, or alone over as-found."""
    columns = (
        ("where it was added", [(fix.fix, fix.added) for fix in effects]),
        ("alone, over as-found", [(fix.fix, fix.alone) for fix in effects]),
    )
    parts = []
    for where, rows in columns:
        slower = [(fix, ratio) for fix, row in rows if (ratio := gain(row)).high is not None and ratio.high < 1]
        if slower:
            parts.append(f"slower {where}: " + listed(f"{fix} ({_interval(ratio)})" for fix, ratio in slower))
    return f" S{parts[0][1:]}{''.join(f'; {part}' for part in parts[1:])}." if parts else ""


def _interval(ratio: Ratio) -> str:
    ends = " to ".join(factor(end)[0] for end in (ratio.low, ratio.high) if end is not None)
    return f"{ratio_text(ratio.value or 0.0)}, 95% {ends}"


def _then(later: list[FixEffects]) -> str:
    return f", then {listed(map(_effect, later))}" if later else ""


def _clear(fix: FixEffects, *, faster: bool) -> bool:
    value = fix.on_top.value
    return fix.on_top.different and value is not None and (value > 1) == faster


def _effect(fix: FixEffects) -> str:
    """Name a fix, how many fixes were left out with it, and what the set gains by them."""
    also = len(fix.without.also) if fix.without else 0
    others = f", with the {'one' if also == 1 else also} that need{'s' * (also == 1)} it" if also else ""
    return f"{fix.fix} ({_times(fix)}{others})"


def _times(fix: FixEffects) -> str:
    return ratio_text(fix.on_top.value or 0.0)


def _reason(effects: tuple[FixEffects, ...]) -> str:
    return next((describe(fix.on_top.reason) for fix in effects if fix.on_top.reason), NO_REASON)


def _row(fix: FixEffects) -> tuple[Cell, ...]:
    together = []
    if fix.alone and fix.alone.also:
        together.append(f"alone: {listed(fix.alone.also)}")
    if fix.without and fix.without.also:
        together.append(f"left out: {listed(fix.without.also)}")
    return (
        Cell(fix.fix, note=_notes(fix), strong=True),
        *(ratio_cell(gain(row)) for row in (fix.alone, fix.added)),
        _predicted(fix.added),
        _left_out_cell(fix.without),
        Cell("; ".join(together)),
    )


def _notes(fix: FixEffects) -> str:
    """What the fix removes, and the rule that recognizes it."""
    return "; ".join(filter(None, (_removes(fix.removes), fix.rule and f"rule: {fix.rule}")))


def _predicted(row: LadderRow | None) -> Cell:
    """The predicted gain with its interval, or that and why there is none."""
    predicted = row.predicted if row else NO_PREDICTION
    if predicted.value is None:
        return Cell("not predicted", note=describe(predicted.reason))
    low, high = (factor(end)[0] for end in (predicted.low or 0.0, predicted.high or 0.0))
    value, unit = factor(predicted.value)
    text = f"at least {value}" if row and row.is_lower_bound else value
    return Cell(text, unit, sort=predicted.value, note="" if low == high else f"{low} to {high}")


def _left_out_cell(row: LadderRow | None) -> Cell:
    """The measured gain over the set without the fix, and below it the predicted one where there is one."""
    cell = ratio_cell(gain(row))
    if row is None or row.predicted.value is None:
        return cell
    predicted = _predicted(row)
    text = f"predicted {predicted.text}{predicted.unit}" + (f" ({predicted.note})" if predicted.note else "")
    return replace(cell, note="; ".join(filter(None, (cell.note, text))))


def _rest(report_input: ReportInput, ladder: Ladder) -> tuple[Block, ...]:
    """Build the table of the other programs, and the list of those that cannot run here."""
    blocks: list[Block] = []
    others = ladder.of_kind("on top", "precision", "instead", "work", "beside")
    if others:
        speed = report_input.rate_phrase("tokens_per_s").capitalize()
        columns = (
            Column("Program"), Column(speed, number=True), Column("CPU time of a step", number=True),
            Column("Over fixed", number=True),
        )  # fmt: skip
        full = ladder.of_kind("cumulative")[-1:]
        rows = (*ladder.of_kind("baseline"), *(replace(row, label="fixed", removes="") for row in full), *others)
        blocks.append(Table("Other programs", columns, tuple(map(_other, rows)), _OTHERS_NOTE))
    reasons = dict.fromkeys(why for _, why in ladder.unavailable)
    if reasons:
        items = (
            f"{', '.join(name for name, why in ladder.unavailable if why == reason)}: {reason or NO_REASON}"
            for reason in reasons
        )
        blocks.append(Items(tuple(items), f"Not available on {on_device(report_input)}"))
    return tuple(blocks)


_OTHERS_NOTE = (
    "CPU time: of all threads of the process, those of a host device and waits that poll among it. Programs with no "
    "ratio do other work, or are no variant of this trainer. With tf32 and bf16 the results are rounded too."
)


def _removes(cost: str) -> str:
    """Mark a cost as one that a fix removes: readers took it for what the fix does."""
    return f"removes: {cost}" if cost else ""


def _other(row: LadderRow) -> tuple[Cell, ...]:
    ratio = Cell("")
    if row.kind not in ("baseline", "cumulative"):
        ratio = Cell("no ratio") if row.kind in NO_RATIO else ratio_cell(row.gain)
    replaced = (
        f"in place of {listed(row.also)}; what it does before a run is in no step"
        if row.kind == "instead" and row.also
        else ""
    )
    note = "; ".join(filter(None, (row.what, _removes(row.removes), replaced)))
    cpu = missing_cell(row.measure("host_cpu").reason) if row.cpu_time is None else seconds_cell(row.cpu_time)
    speed = measure_cell(row.measure("tokens_per_s"), spread=True, bare=True)
    return Cell(row.label, note=note, strong=True), speed, cpu, ratio


def waterfall(report_input: ReportInput, ladder: Ladder) -> Waterfall | NotMeasured:
    """Build the waterfall; each level is as-found's mean times a paired ratio, so that lengths and factors agree."""
    base = ladder.baseline
    start = base.measure("tokens_per_s") if base else None
    if base is None or start is None or not start.value:
        reason = describe(start.reason) if start else "the ladder has no row of as-found"
        return NotMeasured("the waterfall of the fixes", reason or "as-found did no work that it counted")
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
        f"Measured on {on_device(report_input)} in {rounds}. Each bar is one more fix over those before it. Levels "
        f"are the mean of {base.label} times the factors; "
        "the thin lines are 95% intervals, without a cap where they go on. The axis is logarithmic: "
        "equal lengths are equal factors."
    )
    rate_name = report_input.rate_phrase("tokens_per_s").capitalize()
    return Waterfall(f"{rate_name}, one fix after the other", start.unit, tuple(stairs), note)


def _climb(rows: tuple[LadderRow, ...], base: float) -> Iterator[Stair]:
    """Yield a stair for each row, from the level that the row before it reached."""
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


def _kind(gain: Ratio) -> str:
    if gain.low is None or gain.value is None:
        return "unknown"
    if not gain.different:
        return "same"
    return "gain" if gain.value > 1 else "loss"


def _whole(report_input: ReportInput, total: Ratio, count: int, base: float) -> Stair:
    cell = ratio_cell(total)
    label = report_input.sides[-1].label if len(report_input.sides) > 1 else "all of them"
    end, low, high = (base * value if value else None for value in (total.value, total.low, total.high))
    note = f"all {count} fixes" if count > 1 else "the one fix"
    return Stair(label, base, end, low, high, cell.text + cell.unit, cell.interval, "total", note, cell.note)


def on_device(report_input: ReportInput) -> str:
    """Name the device as in a sentence."""
    names = report_input.devices
    return f"the {names}" if names == HOST_DEVICE else names


PLUGIN = SectionPlugin("ladder", TITLE, 22, build, ladder_json, group="time")
