"""Tables from declared columns, and the cells of measures: numbers and units apart, missing values with reasons."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import PurePath
from typing import Generic, TypeVar

from profiler.analyse.model import Measure, Ratio
from profiler.core import units
from profiler.core.metrics import is_constant, is_share, label
from profiler.core.notice import Notice
from profiler.report.blocks import NOTHING, Cell, Column, Table
from profiler.report.model import BREAKDOWN_PASS, ReportInput, ReportSide
from profiler.report.text import NO_REASON, describe, notebook_cell
from profiler.run.model import Site

T = TypeVar("T")
_PATH_PARTS = 2
"""Parts of a path that are shown, the file included; the title has the full path."""
_PATH_CHARACTERS = 56
_SMALLEST_SHARE = 0.001
_SMALLEST_RATIO = 0.5


@dataclass(frozen=True)
class Field(Generic[T]):
    """A declared column: its head, and how an item becomes its cell."""

    title: str
    cell: Callable[[T], Cell]
    number: bool = False
    tone: str = ""
    bar: bool = False


def make_table(caption: str, fields: Sequence[Field[T]], items: Iterable[T], note: str = "") -> Table:
    """A table with a row per item."""
    columns = tuple(Column(field.title, field.number, field.tone, field.bar) for field in fields)
    return Table(caption, columns, tuple(tuple(field.cell(item) for field in fields) for item in items), note)


def sides_table(
    caption: str,
    rows: Sequence[tuple[ReportSide, Sequence[T]]],
    names: Sequence[Field[T]],
    values: Sequence[Field[T]],
    note: str = "",
) -> Table:
    """The items of all sides in one table: an item is the same on two sides where all of its names are.

    :param names: fields that name an item.
    :param values: fields of each side; the first one has the side's label as its title where there are several sides,
        and the items are sorted by it: by its part of the largest one on the same side, so that what is large on one
        side stands beside what is large on another one.
    """
    if len(rows) == 1:
        ((side, items),) = rows
        return make_table(f"{side.label}: {caption}", (*names, *values), items, note)

    def key(item: T) -> tuple[Cell, ...]:
        return tuple(field.cell(item) for field in names)

    by_side = [{key(item): item for item in items} for _, items in rows]
    every = dict.fromkeys(name for items in by_side for name in items)

    sizes = [{name: values[0].cell(item).sort or 0.0 for name, item in items.items()} for items in by_side]
    largest = [max(each.values(), default=0.0) or 1.0 for each in sizes]

    def size(name: tuple[Cell, ...]) -> float:
        return max(each[name] / most for each, most in zip(sizes, largest, strict=True) if name in each)

    def field(side: ReportSide, items: Mapping[tuple[Cell, ...], T], value: Field[T]) -> Field[tuple[Cell, ...]]:
        def cell(name: tuple[Cell, ...]) -> Cell:
            return value.cell(items[name]) if name in items else Cell(NOTHING)

        title, tone = (side.label, side.tone) if value is values[0] else (value.title, "")
        return Field(title, cell, value.number, tone)

    fields: list[Field[tuple[Cell, ...]]] = [Field(each.title, itemgetter(index)) for index, each in enumerate(names)]
    fields += [field(side, items, value) for (side, _), items in zip(rows, by_side, strict=True) for value in values]
    return make_table(caption[:1].upper() + caption[1:], fields, sorted(every, key=size, reverse=True), note)


def compare_table(
    report_input: ReportInput,
    names: Sequence[str],
    caption: str,
    *,
    spread: bool = False,
    note: str = "",
) -> Table:
    """A row per measure, a column per side and, from the second side on, its ratio over the baseline.

    :param spread: with the range of each measure.
    """
    sides = report_input.sides
    units_of_rows = {
        name: next((unit for side in sides if (unit := constant_unit(side.measure(name).unit))), "") for name in names
    }

    def title(name: str) -> Cell:
        unit = units_of_rows[name] if name != "steps_per_s" else ""
        return Cell(f"{label(name)}, {unit}" if unit else label(name))

    def value_field(side: ReportSide) -> Field[str]:
        def cell(name: str) -> Cell:
            return measure_cell(side.measure(name), share=is_share(name), spread=spread, bare=True)

        return Field(side.label, cell, number=True, tone=side.tone)

    def ratio_field(side: ReportSide) -> Field[str]:
        def cell(name: str) -> Cell:
            return ratio_cell(report_input.ratio(side.label, name), sides[0].measure(name), side.measure(name))

        return Field("Ratio" if len(sides) == 2 else f"{side.label} / {sides[0].label}", cell, number=True)

    fields = [Field("Measure", title), *map(value_field, sides[:1])]
    for side in sides[1:]:
        fields += [value_field(side), ratio_field(side)]
    return make_table(caption, fields, names, note)


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
    """A share as a percentage with one decimal; one above 0 is never shown as 0."""
    return _hundredths(share) + "%"


def more_lines(number: int, share: float) -> str:
    """`1 more line takes 2.0%`, `3 more lines share 5.0%`: of a table's last rows, which are not shown."""
    return (
        f"{number} more line takes {percent(share)}" if number == 1 else f"{number} more lines share {percent(share)}"
    )


def measure_cell(measure: Measure, *, share: bool = False, spread: bool = False, bare: bool = False) -> Cell:
    """The cell of a measure.

    :param share: as a percentage with two significant digits, as in sentences.
    :param spread: with its range below.
    :param bare: without a unit that the row or column states already (`constant_unit`).
    """
    if measure.value is None:
        return missing_cell(measure.reason)
    text, unit = _shown(measure.value, measure.unit, share)
    note = ""
    if spread and measure.low is not None and measure.high is not None:
        (low, low_unit), (high, high_unit) = (_shown(end, measure.unit, share) for end in (measure.low, measure.high))
        if low_unit != high_unit:
            note = f"{low} {low_unit} to {high} {high_unit}"
        elif low != high:
            note = f"{low} to {high}"
    if measure.source == BREAKDOWN_PASS:
        note = note or BREAKDOWN_PASS
    return Cell(text, "" if bare and unit == constant_unit(measure.unit) else unit, sort=measure.value, note=note)


def _shown(value: float, unit: str, share: bool) -> tuple[str, str]:
    return (units.share(value).removesuffix("%"), "%") if share else quantity(value, unit)


def constant_unit(unit: str) -> str:
    """The unit if it is the same at every size, so that a row can state it; else nothing (ms, MB, %)."""
    return unit if unit.endswith("/s") or unit == "cores" else ""


def missing_cell(reason: Notice | str | None) -> Cell:
    """The cell of something that was not measured."""
    return Cell("", missing=(reason if isinstance(reason, str) else describe(reason)) or NO_REASON)


def seconds_cell(value: float) -> Cell:
    """The cell of a duration in seconds."""
    return Cell(*quantity(value, "s"), sort=value)


def count_cell(value: float) -> Cell:
    """The cell of a count or a mean of counts."""
    return Cell(units.count(value), sort=value)


def share_cell(value: float, *, note: str = "") -> Cell:
    """The cell of a share."""
    return Cell(_hundredths(value), "%", sort=value, note=note)


def factor(value: float) -> tuple[str, str]:
    """A ratio as number and unit; a small one as a fraction, because 1/6,000 is easier to read than 0.000167."""
    if 0 < value < _SMALLEST_RATIO:
        return f"1/{units.count(1 / value)}", ""
    return units.significant(value), units.TIMES


def ratio_text(value: float) -> str:
    """A ratio in running text."""
    return "".join(factor(value))


def ratio_cell(ratio: Ratio | None, before: Measure | None = None, after: Measure | None = None) -> Cell:
    """The cell of a ratio with its 95% interval; of exact counters that fell to 0, what happened in words."""
    if ratio is not None and ratio.value is not None:
        # that there is only one pair of runs is told on the first screen
        doubt = "" if ratio.different or ratio.n == 1 else describe(ratio.reason) or "no difference seen"
        note, interval, value = doubt, "", ratio.value
        if ratio.low is not None and ratio.high is not None:
            if not is_constant(ratio.name, ratio.low, ratio.high):
                interval = f"{factor(ratio.low)[0]} to {factor(ratio.high)[0]}"
            elif before is not None and after is not None and before.value and after.value:
                value = after.value / before.value  # of an exact counter, the ratio of the numbers beside it
        return Cell(*factor(value), sort=value, note=note, interval=interval)
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
    """file:line with the function and the text of the line below; the title has the full path."""
    if site is None:
        return missing_cell(reason)
    # for the module level of a script the line is enough
    note = "" if site.function == "<module>" else site.function.replace("<locals>.", "")
    return Cell(short_site(site), note=note, title=f"{site.file}:{site.line}", source=site.source, code=True)


def short_site(site: Site) -> str:
    """The end of the path, and the line."""
    return f"{notebook_cell(site.file) or short_path(site.file)}:{site.line}"


def short_path(path: str) -> str:
    """The last folders of a path."""
    parts = PurePath(path).parts
    short = path if len(parts) <= _PATH_PARTS + 1 else "…/" + "/".join(parts[-_PATH_PARTS:])
    return short if len(short) <= _PATH_CHARACTERS else "…" + short[1 - _PATH_CHARACTERS :]
