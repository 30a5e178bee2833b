"""Cells of measures: number and unit apart so that columns align, missing with its reason; paths shortened."""

from __future__ import annotations

import sys
from pathlib import PurePath

from profiler.analyse.model import Measure, Ratio
from profiler.core import units
from profiler.core.metrics import is_constant
from profiler.core.notice import Notice
from profiler.report.blocks import Cell
from profiler.report.text import NO_REASON, describe
from profiler.run.model import Site

_SHOWN_PARTS = 2
"""Parts of a path that are shown, the file included; the rest is in the title."""
_SHOWN_CHARACTERS = 56
_SMALLEST_SHARE = 0.001
_SMALLEST_RATIO = 0.1


def digits(value: float) -> str:
    """A plain number: whole ones in full, others with three significant digits."""
    return units.count(value)


def quantity(value: float, unit: str) -> tuple[str, str]:
    """A value and its unit apart, at a readable size: (0.0621, 's') -> ('62.1', 'ms')."""
    text = units.value(value, unit)
    if unit in {"x", "ratio"}:
        return text.removesuffix(units.TIMES), units.TIMES
    number, _, name = text.partition(" ")
    if name == "B":
        return units.count(value), name
    return number, "" if name == "steps" else name


def phrase(value: float, unit: str) -> str:
    """A value with its unit in running text."""
    text, scaled = quantity(value, unit)
    return text + ("" if scaled in {"", units.TIMES} else " ") + scaled


def _hundredths(share: float) -> str:
    if 0 < share < _SMALLEST_SHARE:
        return f"<{100 * _SMALLEST_SHARE:.1f}"
    return f"{100 * share:.1f}"


def percent(share: float) -> str:
    """A share as a percentage with one decimal; one that is there is never shown as 0."""
    return _hundredths(share) + "%"


def measure_cell(measure: Measure, *, share: bool = False, spread: bool = False, bare: bool = False) -> Cell:
    """The cell of a measure.

    :param share: as a percentage with two significant digits, as sentences have it.
    :param spread: with its range below.
    :param bare: without a unit that the row or column names already (`named_unit`).
    """
    if measure.value is None:
        return missing_cell(measure.reason)
    text, unit = _shown(measure.value, measure.unit, share=share)
    note = ""
    if spread and measure.low is not None and measure.high is not None:
        note = _range(measure.low, measure.high, measure.unit, share=share)
    if measure.source == "breakdown pass":
        note = note or "breakdown pass"
    return Cell(text, "" if bare and unit == named_unit(measure.unit) else unit, sort=measure.value, note=note)


def named_unit(unit: str) -> str:
    """The unit if it is the same at every size, so that a row can name it; else nothing (ms, MB, %)."""
    return unit if unit.endswith("/s") or unit == "cores" else ""


def _shown(value: float, unit: str, *, share: bool) -> tuple[str, str]:
    return (units.share(value).removesuffix("%"), "%") if share else quantity(value, unit)


def _range(low: float, high: float, unit: str, *, share: bool) -> str:
    """Both ends, the unit once where it is the same; nothing where both read the same."""
    (first, first_unit), (last, last_unit) = (_shown(value, unit, share=share) for value in (low, high))
    if (first, first_unit) == (last, last_unit):
        return ""
    if first_unit == last_unit:
        return f"{first} to {last}"
    return f"{first} {first_unit} to {last} {last_unit}"


def missing_cell(reason: Notice | str | None) -> Cell:
    """The cell of something that was not measured."""
    return Cell("", missing=(reason if isinstance(reason, str) else describe(reason)) or NO_REASON)


def seconds_cell(value: float) -> Cell:
    """The cell of a duration in seconds."""
    text, unit = quantity(value, "s")
    return Cell(text, unit, sort=value)


def share_cell(value: float) -> Cell:
    """The cell of a share."""
    return Cell(_hundredths(value), "%", sort=value)


def factor(value: float) -> tuple[str, str]:
    """A ratio as number and unit; a small one as a fraction, because 1/6,000 says more than 0.000167."""
    if 0 < value < _SMALLEST_RATIO:
        return f"1/{digits(1 / value)}", ""
    return units.significant(value), units.TIMES


def ratio_text(value: float) -> str:
    """A ratio in running text."""
    return "".join(factor(value))


def ratio_cell(ratio: Ratio | None, before: Measure | None = None, after: Measure | None = None) -> Cell:
    """The cell of a ratio, its 95% interval below; of exact counters that fell to 0, what happened in words."""
    if ratio is not None and ratio.value is not None:
        note = "" if ratio.different else describe(ratio.reason) or "no difference seen"
        if ratio.low is not None and ratio.high is not None and not is_constant(ratio.name, ratio.low, ratio.high):
            span = f"{factor(ratio.low)[0]} to {factor(ratio.high)[0]}"
            note = f"{span}, {note}" if note else span
        return Cell(*factor(ratio.value), sort=ratio.value, note=note)
    if before is not None and after is not None and before.value is not None and after.value is not None:
        if before.value == after.value:
            return Cell("same", sort=1.0)
        if after.value == 0:
            return Cell("none left", sort=0.0)
        if before.value == 0:
            return Cell("new", sort=sys.float_info.max)
        return Cell(*factor(after.value / before.value), sort=after.value / before.value, note="of the medians")
    return missing_cell(ratio.reason if ratio is not None else "one side was not measured")


def site_cell(site: Site | None, reason: str = "no site was recorded") -> Cell:
    """file:line with the function below; the full path in the title."""
    if site is None:
        return missing_cell(reason)
    # a script's own level says nothing beside its line
    note = "" if site.function == "<module>" else site.function.replace("<locals>.", "")
    return Cell(short_site(site), note=note, title=f"{site.file}:{site.line}", code=True)


def short_site(site: Site) -> str:
    """The end of the path, and the line."""
    return f"{short_path(site.file)}:{site.line}"


def short_path(path: str) -> str:
    """The last folders of a path."""
    parts = PurePath(path).parts
    short = path if len(parts) <= _SHOWN_PARTS + 1 else "…/" + "/".join(parts[-_SHOWN_PARTS:])
    return short if len(short) <= _SHOWN_CHARACTERS else "…" + short[1 - _SHOWN_CHARACTERS :]
