"""The waterfall of a ladder: as-found, one step a cure, all of them."""

from __future__ import annotations

from collections.abc import Iterator

from profiler.analyse.model import Ladder, LadderRow, Ratio
from profiler.core.device_names import HOST_DEVICE
from profiler.report.blocks import NotMeasured, Stair, Waterfall
from profiler.report.quantities import measure_cell, phrase, ratio_cell
from profiler.report.rungs import baseline_of, measure, rows_of
from profiler.report.subject import Subject, devices, rate_words, views


def waterfall(subject: Subject, ladder: Ladder) -> Waterfall | NotMeasured:
    """Every level is as-found's median times a ratio paired by rounds, so that lengths and factors agree."""
    base = baseline_of(ladder)
    start = measure(base, "tokens_per_s") if base else None
    if base is None or start is None or not start.value:
        reason = start.reason if start else "the ladder has no row of as-found"
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
    climbed = rows_of(ladder, "cumulative")
    stairs += _climb(climbed, start.value)
    if climbed and climbed[-1].total.value:
        stairs.append(_whole(subject, climbed[-1].total, len(climbed), start.value))
    rounds = f"{ladder.rounds} interleaved round{'s' * (ladder.rounds != 1)}"
    note = (
        f"Measured on {on_device(subject)} in {rounds}. Each bar is one more cure over those before it. Levels are the "
        f"median of {base.label} times the factors, not medians of their own; "
        "the thin lines are 95% intervals, without a cap where they go on. The axis is logarithmic: "
        "equal lengths are equal factors."
    )
    words = rate_words(views(subject), "tokens_per_s").capitalize()
    return Waterfall(f"{words}, one cure after the other", start.unit, tuple(stairs), note)


def _climb(rows: tuple[LadderRow, ...], base: float) -> Iterator[Stair]:
    """A step for each row, from the level that the row before it reached."""
    level: float | None = base
    for row in rows:
        end = base * row.total.value if row.total.value else None
        if row.gain.value is None or end is None:
            yield Stair(
                row.label, None, end, None, None, "not measured", row.gain.reason or row.total.reason, "unknown"
            )
        else:
            low, high = (level * x if level and x else None for x in (row.gain.low, row.gain.high))
            factor = ratio_cell(row.gain)
            yield Stair(row.label, level, end, low, high, factor.text + factor.unit, factor.note, _kind(row.gain))
        level = end


def _kind(found: Ratio) -> str:
    if found.low is None or found.value is None:
        return "unknown"
    if not found.different:
        return "same"
    return "gain" if found.value > 1 else "loss"


def _whole(subject: Subject, total: Ratio, count: int, base: float) -> Stair:
    cell = ratio_cell(total)
    label = views(subject)[-1].label if len(views(subject)) > 1 else "all of them"
    end, low, high = (base * value if value else None for value in (total.value, total.low, total.high))
    note = f"all {count} cures" if count > 1 else "the one cure"
    return Stair(label, base, end, low, high, cell.text + cell.unit, cell.note, "total", note)


def on_device(subject: Subject) -> str:
    """The device in a sentence."""
    named = devices(views(subject))
    return f"the {named}" if named == HOST_DEVICE else named
