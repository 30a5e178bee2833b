"""The section about the gain of each fix: alone, on top of those before it, and on top of all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from profiler.analyse.model.comparison import Ratio
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
from profiler.report.notices import NO_REASON, describe
from profiler.report.table import factor, measure_cell, missing_cell, phrase, ratio_cell, seconds_cell
from profiler.report.text import listed, plural
from reference_trainer.report.ladder import NO_RATIO, NO_ROW, Ladder, LadderRow, comparison_ladder
from reference_trainer.report.ladder_json import ladder_json

TITLE: Final = "The ladder of fixes"
_COLUMNS: Final = (
    Column("Fix"),
    Column("Alone", number=True),
    Column("On top of those before it", number=True),
    Column("Predicted", number=True),
    Column("On top of all others", number=True),
)
_NOTE: Final = (
    "{}, with 95% intervals. Alone: over as-found. On top of all others: the full set over the full set "
    "without this fix. What a fix needs came along with it, and what needs it was left out with it. "
    "Rule: it detects the cost that the fix removes, in any program. Predicted: the gain by the rule's finding in the "
    "program without this fix, if all of the cost goes, with the range of all predictions; several fixes of one rule "
    "share it. At least: the fix also saves an unknown amount of Python around the calls that it merges, and of device "
    "time."
)
_OTHERS_NOTE: Final = (
    "CPU time is that of the process with all its threads and children; it includes a host device and waits that poll. "
    "Programs with no ratio do other work, or are no variant of this trainer. With tf32 and bf16 the results are "
    "rounded too."
)
_WATERFALL_NOTE: Final = (
    "Measured on {} in {}. Each bar is one more fix over those before it. Levels are the mean of {} times the factors; "
    "the thin lines are 95% intervals, without a cap where they go on. The axis is logarithmic: equal lengths are "
    "equal factors."
)


def build(report_input: ReportInput) -> Section | None:
    """Build the sentence, the waterfall and the table; then the other programs, and what cannot run here."""
    ladder = comparison_ladder(report_input.comparison)
    if ladder is None:
        return None
    blocks: list[Block] = []
    if ladder.interrupted:
        rounds = plural(ladder.rounds, "complete round")
        blocks.append(Callout(f"The ladder was interrupted after {rounds}.", "warning", "Doubt"))
    if not (fixes := ladder.by_fix()):
        reason = "no round was complete" if ladder.interrupted else "the ladder has no row of a fix"
        blocks.append(NotMeasured("what each fix gives", reason))
        return Section("ladder", TITLE, (*blocks, *_others(report_input, ladder)))
    if sentence := ladder.verdict_sentence():
        blocks.append(Text(sentence))
    blocks.append(_waterfall(report_input, ladder))
    note = _NOTE.format(report_input.rate_phrase("tokens_per_s").capitalize())
    table = Table("What each fix gives", _COLUMNS, tuple(_row(rows) for rows in fixes.values()), note)
    return Section("ladder", TITLE, (*blocks, table, *_others(report_input, ladder)), brief=tuple(blocks))


# ---------------------------------------------------------------- what each fix gives


def _row(rows: Mapping[str, LadderRow]) -> tuple[Cell, ...]:
    """Build the row of a fix from the ladder's rows about it, by kind."""
    first, added, without = next(iter(rows.values())), rows.get("cumulative"), rows.get("without")
    notes = _notes(_removes(first), f"rule: {first.rule}" if first.rule else "")
    predicted = _predicted(without) if without and without.predicted.value is not None else None
    below = f"predicted {predicted.text}{predicted.unit}" if predicted else ""
    below += f" ({predicted.note})" if predicted and predicted.note else ""
    return (
        Cell(first.fix, note=notes, strong=True),
        _gain(rows.get("alone"), "with"),
        _gain(added, ""),
        _predicted(added),
        _gain(without, "left out with", below),
    )


def _gain(row: LadderRow | None, together: str, below: str = "") -> Cell:
    """Show the gain of a row, and below it the fixes that came or went with this one."""
    if row is None:
        return missing_cell(NO_ROW)
    cell = ratio_cell(row.gain)
    return replace(cell, note=_notes(cell.note, f"{together} {listed(row.also)}" if row.also else "", below))


def _predicted(row: LadderRow | None) -> Cell:
    """Show the predicted gain with its interval, or that there is none, and why."""
    if row is None or row.predicted.value is None:
        return Cell("not predicted", note=describe(row.predicted.reason if row else NO_ROW))
    low, high = (factor(end or 0.0)[0] for end in (row.predicted.low, row.predicted.high))
    value, unit = factor(row.predicted.value)
    text = f"at least {value}" if row.is_lower_bound else value
    return Cell(text, unit, sort=row.predicted.value, note="" if low == high else f"{low} to {high}")


def _removes(row: LadderRow) -> str:
    """Mark a cost as one that a fix removes: readers took it for what the fix does."""
    return f"removes: {row.removes}" if row.removes else ""


def _notes(*parts: str) -> str:
    return "; ".join(filter(None, parts))


# ---------------------------------------------------------------- other programs


def _others(report_input: ReportInput, ladder: Ladder) -> Iterator[Block]:
    """Build the table of the other programs beside as-found and fixed, and the list of what cannot run here."""
    if others := ladder.of_kind("on top", "precision", "instead", "work", "beside"):
        speed = report_input.rate_phrase("tokens_per_s").capitalize()
        full = (replace(row, label="fixed", removes="") for row in ladder.of_kind("cumulative")[-1:])
        heads = (speed, "CPU time of a step", "Over fixed")
        columns = (Column("Program"), *(Column(head, number=True) for head in heads))
        rows = (*ladder.of_kind("baseline"), *full, *others)
        yield Table("Other programs", columns, tuple(map(_other, rows)), _OTHERS_NOTE)
    names: dict[str, list[str]] = {}
    for name, why in ladder.unavailable:
        names.setdefault(why or NO_REASON, []).append(name)
    if names:
        items = tuple(f"{', '.join(those)}: {why}" for why, those in names.items())
        yield Items(items, f"Not available on {_on_device(report_input)}")


def _other(row: LadderRow) -> tuple[Cell, ...]:
    ratio = Cell("no ratio") if row.kind in NO_RATIO else ratio_cell(row.gain)
    if row.kind in ("baseline", "cumulative"):
        ratio = Cell("")
    instead = row.kind == "instead" and row.also
    replaced = f"in place of {listed(row.also)}; what it does before a run is in no step" if instead else ""
    cpu = missing_cell(row.measure("host_cpu").reason) if row.cpu_time is None else seconds_cell(row.cpu_time)
    speed = measure_cell(row.measure("tokens_per_s"), spread=True, bare=True)
    return Cell(row.label, note=_notes(row.what, _removes(row), replaced), strong=True), speed, cpu, ratio


# ---------------------------------------------------------------- the waterfall


def _waterfall(report_input: ReportInput, ladder: Ladder) -> Waterfall | NotMeasured:
    """Build the waterfall; each level is as-found's mean times a paired ratio, so that lengths and factors agree."""
    base = ladder.baseline
    start = base.measure("tokens_per_s") if base else None
    if base is None or start is None or not start.value:
        reason = describe(start.reason) if start else "the ladder has no row of as-found"
        return NotMeasured("the waterfall of the fixes", reason or "as-found did no work that it counted")
    shown, runs = phrase(start.value, start.unit), measure_cell(start, spread=True).note
    stairs = [Stair(base.label, None, start.value, start.low, start.high, shown, f"runs {runs}" * bool(runs), "start")]
    climbed = ladder.of_kind("cumulative")
    level: float | None = start.value
    for row in climbed:
        end = start.value * row.total.value if row.total.value else None
        stairs.append(_stair(row.label, row.gain, level, end, _kind(row.gain)))
        level = end
    if climbed and (whole := climbed[-1].total).value:
        label = report_input.sides[-1].label if len(report_input.sides) > 1 else "all of them"
        end, note = start.value * whole.value, f"all {len(climbed)} fixes" if len(climbed) > 1 else "the one fix"
        stairs.append(replace(_stair(label, whole, start.value, end, "total"), note=note))
    rounds = plural(ladder.rounds, "interleaved round")
    note = _WATERFALL_NOTE.format(_on_device(report_input), rounds, base.label)
    rate = report_input.rate_phrase("tokens_per_s").capitalize()
    return Waterfall(f"{rate}, one fix after the other", start.unit, tuple(stairs), note)


def _stair(label: str, ratio: Ratio, begin: float | None, end: float | None, kind: str) -> Stair:
    """Draw a factor from one level to another."""
    if ratio.value is None or end is None:
        return Stair(label, None, end, None, None, "not measured", describe(ratio.reason), "unknown")
    low, high = (begin * bound if begin and bound else None for bound in (ratio.low, ratio.high))
    cell = ratio_cell(ratio)
    text = cell.text + cell.unit
    return Stair(label, begin, end, low, high, text, cell.interval, kind, conclusion=cell.note)


def _kind(ratio: Ratio) -> str:
    if ratio.low is None or ratio.value is None:
        return "unknown"
    if not ratio.different:
        return "same"
    return "gain" if ratio.value > 1 else "loss"


def _on_device(report_input: ReportInput) -> str:
    """Name the device as in a sentence."""
    names = report_input.devices
    return f"the {names}" if names == HOST_DEVICE else names


PLUGIN = SectionPlugin("ladder", TITLE, 22, build, ladder_json, group="time")
