"""Tables from declared columns, and the cells of measures: numbers and units apart, missing values with reasons."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import PurePath
from typing import Generic, TypeVar

from profiler.analyse.model.comparison import Ratio
from profiler.analyse.model.measures import Measure
from profiler.core import units
from profiler.core.errors import Notice
from profiler.core.metrics import is_constant, is_share, label
from profiler.report.blocks import NOTHING, Cell, Column, Table
from profiler.report.model import BREAKDOWN_PASS, ReportInput, ReportSide
from profiler.report.notices import NO_REASON, describe
from profiler.report.text import capitalized, notebook_cell
from profiler.run.model import Site

T = TypeVar("T")
RowKey = tuple[Hashable, int]
"""What a row is about, and the line of code; 0 for none. Rows of two sides with the same first part may match."""
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
    """Return a table with a row per item."""
    columns = tuple(Column(field.title, field.number, field.tone, field.bar) for field in fields)
    return Table(caption, columns, tuple(tuple(field.cell(item) for field in fields) for item in items), note)


def row_key(site: Site | None, *further: Hashable) -> RowKey:
    """The key of a row about a line of code: its file, function and text, because edits above it change its number.

    :param further: what else distinguishes the row.
    """
    if site is None:
        return further, 0
    return (site.file, site.function, site.source or site.line, *further), site.line


_RowName = tuple[Hashable, int, int]
"""The first part of a key with what distinguishes the rows that share it: a line, and a count."""


def _named_rows(sides: Sequence[Sequence[T]], key: Callable[[T], RowKey]) -> list[dict[_RowName, T]]:
    """Return the items of each side by a name that is the same on all sides for items that match, in their order.

    Several items of a side may have the same text in the same function: they match in the order of their lines where
    every side has as many of them, else where their lines are equal.
    """
    lines = [defaultdict[Hashable, list[int]](list) for _ in sides]
    for items, by_text in zip(sides, lines, strict=True):
        for text, line in sorted(map(key, items), key=itemgetter(1)):
            by_text[text].append(line)

    def name(text: Hashable, line: int, own: Mapping[Hashable, list[int]], before: int) -> _RowName:
        counts = {len(by_text[text]) for by_text in lines if text in by_text}
        return (text, 0, own[text].index(line) + before) if len(counts) == 1 else (text, line, before)

    named: list[dict[_RowName, T]] = []
    for items, by_text in zip(sides, lines, strict=True):
        seen = Counter[RowKey]()
        named.append({})
        for item in items:
            named[-1][name(*key(item), by_text, seen[key(item)])] = item
            seen[key(item)] += 1
    return named


def in_one_table(
    sides: Sequence[ReportSide], items: Callable[[ReportSide], Sequence[T]], key: Callable[[T], RowKey]
) -> list[Sequence[ReportSide]]:
    """The sides of each table: all in one if half of the rows of the shortest side match others, else one in each.

    Where fewer match, most cells of one table would be empty.
    """
    if not sides:
        return []
    named = _named_rows([items(side) for side in sides], key)
    numbers = Counter(name for each in named for name in each)
    matches = sum(number > 1 for number in numbers.values())
    return [sides] if 2 * matches >= min(map(len, named)) else [[side] for side in sides]


def sides_table(
    caption: str,
    rows: Sequence[tuple[ReportSide, Sequence[T]]],
    key: Callable[[T], RowKey],
    names: Sequence[Field[T]],
    values: Sequence[Field[T]],
    *,
    note: str = "",
) -> Table:
    """Return the items of all sides in one table, a row for those that match by `key` (see `row_key`).

    :param names: fields that name an item. Where the sides have it at different lines, the location says so.
    :param values: fields of each side; the first one has the side's label as its title where there are several sides,
        and the items are sorted by it: by its part of the largest one on the same side, so that what is large on one
        side stands beside what is large on another one.
    """
    if len(rows) == 1:
        ((side, items),) = rows
        return make_table(f"{side.label}: {caption}", (*names, *values), items, note)

    by_side = _named_rows([items for _, items in rows], key)
    every = dict.fromkeys(name for items in by_side for name in items)

    sizes = [{name: values[0].cell(item).sort or 0.0 for name, item in items.items()} for items in by_side]
    largest = [max(each.values(), default=0.0) or 1.0 for each in sizes]

    def size(name: _RowName) -> float:
        return max(each[name] / most for each, most in zip(sizes, largest, strict=True) if name in each)

    def name_field(field: Field[T]) -> Field[_RowName]:
        def cell(name: _RowName) -> Cell:
            found = [(side, items[name]) for (side, _), items in zip(rows, by_side, strict=True) if name in items]
            first = found[0][1]
            shown, line = field.cell(first), key(first)[1]
            moved = [f"line {key(item)[1]} in {side.label}" for side, item in found[1:] if key(item)[1] != line]
            return replace(shown, note=", ".join(filter(None, (shown.note, *moved)))) if shown.is_location else shown

        return Field(field.title, cell)

    def field(side: ReportSide, items: Mapping[_RowName, T], value: Field[T]) -> Field[_RowName]:
        def cell(name: _RowName) -> Cell:
            return value.cell(items[name]) if name in items else Cell(NOTHING)

        title, tone = (side.label, side.tone) if value is values[0] else (value.title, "")
        return Field(title, cell, value.number, tone)

    fields = [*map(name_field, names)]
    fields += [field(side, items, value) for (side, _), items in zip(rows, by_side, strict=True) for value in values]
    return make_table(capitalized(caption), fields, sorted(every, key=size, reverse=True), note)


def compare_table(
    report_input: ReportInput,
    names: Sequence[str],
    caption: str,
    *,
    spread: bool = False,
    per_step: bool = False,
    note: str = "",
) -> Table:
    """Return a row per measure, a column per side and, from the second side on, its ratio over the baseline.

    :param spread: with the range of each measure.
    :param per_step: the caption or the title says that all measures are per step.
    """
    sides = report_input.sides
    units_of_rows = {
        name: next((unit for side in sides if (unit := constant_unit(side.measure(name).unit))), "") for name in names
    }

    def title(name: str) -> Cell:
        unit = units_of_rows[name] if name != "steps_per_s" else ""
        text = label(name).removesuffix(" per step") if per_step else label(name)
        return Cell(f"{text}, {unit}" if unit else text)

    def value_field(side: ReportSide) -> Field[str]:
        def cell(name: str) -> Cell:
            shown = measure_cell(side.measure(name), share=is_share(name), spread=spread, bare=True)
            return replace(shown, note="") if intervals and is_of_one_run(name) else shown

        return Field(side.label, cell, number=True, tone=side.tone)

    def ratio_of(side: ReportSide, name: str) -> Cell:
        return ratio_cell(report_input.ratio(side.label, name), sides[0].measure(name), side.measure(name))

    def ratio_field(side: ReportSide) -> Field[str]:
        def cell(name: str) -> Cell:
            ratio = ratio_of(side, name)
            return replace(ratio, interval="", note="") if intervals else ratio

        return Field("Ratio" if len(sides) == 2 else f"{side.label} / {sides[0].label}", cell, number=True)

    def is_of_one_run(name: str) -> bool:
        return all(side.measure(name).source == BREAKDOWN_PASS for side in sides)

    def interval(name: str) -> Cell:
        ratio = ratio_of(sides[1], name)
        return Cell(BREAKDOWN_PASS if is_of_one_run(name) else ", ".join(filter(None, (ratio.interval, ratio.note))))

    # without ranges below the measures, a column of intervals is half as high as intervals below the ratios
    intervals = len(sides) == 2 and not spread and any(interval(name).text for name in names)
    fields = [Field("Measure", title), *map(value_field, sides[:1])]
    for side in sides[1:]:
        fields += [value_field(side), ratio_field(side)]
    if intervals:
        fields.append(Field("95% interval", interval))
    return make_table(caption, fields, names, note)


def quantity(value: float, unit: str) -> tuple[str, str]:
    """Return a value and its unit apart, at a readable size: (0.0621, 's') -> ('62.1', 'ms')."""
    text = units.value(value, unit)
    if unit in {"x", "ratio"}:
        return text.removesuffix(units.TIMES), units.TIMES
    number, _, name = text.partition(" ")
    if name == "B":
        return units.count(value), name
    return number, "" if name == "steps" else name


def phrase(value: float, unit: str) -> str:
    """Return a value with its unit in running text."""
    text, scaled = quantity(value, unit)
    return text + ("" if scaled in {"", units.TIMES} else " ") + scaled


def _hundredths(share: float) -> str:
    if 0 < share < _SMALLEST_SHARE:
        return f"<{100 * _SMALLEST_SHARE:.1f}"
    return f"{100 * share:.1f}"


def percent(share: float) -> str:
    """Return a share as a percentage with one decimal; one above 0 is never shown as 0."""
    return _hundredths(share) + "%"


def more_lines(number: int, share: float) -> str:
    """`1 more line takes 2.0%`, `3 more lines share 5.0%`: of a table's last rows, which are not shown."""
    return (
        f"{number} more line takes {percent(share)}" if number == 1 else f"{number} more lines share {percent(share)}"
    )


def measure_cell(measure: Measure, *, share: bool = False, spread: bool = False, bare: bool = False) -> Cell:
    """Return the cell of a measure.

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
    """Return the unit if it is the same at every size, so that a row can state it; else nothing (ms, MB, %)."""
    return unit if unit.endswith("/s") or unit == "cores" else ""


def missing_cell(reason: Notice | str | None) -> Cell:
    """Return the cell of something that was not measured."""
    return Cell("", missing=(reason if isinstance(reason, str) else describe(reason)) or NO_REASON)


def seconds_cell(value: float | None, *, missing: str = "") -> Cell:
    """Return the cell of a duration in seconds, or why there is none."""
    return missing_cell(missing) if value is None else Cell(*quantity(value, "s"), sort=value)


def count_cell(value: float) -> Cell:
    """Return the cell of a count or a mean of counts."""
    return Cell(units.count(value), sort=value)


def share_cell(
    value: float | None, interval: tuple[float, float] | None = None, *, note: str = "", missing: str = ""
) -> Cell:
    """Return the cell of a share, with its 95% interval, if it has one, or a note below it; or why there is none."""
    if value is None:
        return missing_cell(missing)
    if interval is not None and interval[0] < interval[1]:
        note = f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}"
    return Cell(_hundredths(value), "%", sort=value, note=note)


def factor(value: float) -> tuple[str, str]:
    """Return a ratio as number and unit; a small one as a fraction, because 1/6,000 is easier to read than 0.000167."""
    if 0 < value < _SMALLEST_RATIO:
        return f"1/{units.count(1 / value)}", ""
    return units.significant(value), units.TIMES


def ratio_text(value: float) -> str:
    """Return a ratio in running text."""
    return "".join(factor(value))


def ratio_cell(ratio: Ratio | None, before: Measure | None = None, after: Measure | None = None) -> Cell:
    """Return the cell of a ratio with its 95% interval; of exact counters that fell to 0, what happened in words."""
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
    if ratio is not None and ratio.is_doubted:
        return bound_cell(ratio)
    if before is not None and after is not None and before.value is not None and after.value is not None:
        if before.value == after.value:
            return Cell("same", sort=1.0)
        if after.value == 0:
            return Cell("none left", sort=0.0)
        if before.value == 0:
            return Cell("new", sort=sys.float_info.max)
        is_of_one_run = before.source == after.source == BREAKDOWN_PASS
        note = "" if is_of_one_run else "of these values"
        return Cell(*factor(after.value / before.value), sort=after.value / before.value, note=note)
    return missing_cell(ratio.reason if ratio is not None else "one side was not measured")


def bound_cell(ratio: Ratio) -> Cell:
    """Tell what a ratio is at least or at most, where a side waited for a core."""
    if ratio.bound is None:
        return missing_cell(ratio.reason)
    number, unit = factor(ratio.bound)
    return Cell(f"{'≥' if ratio.bound > 1 else '≤'} {number}", unit, sort=ratio.bound)


def site_cell(site: Site | None, reason: str = "no site was recorded") -> Cell:
    """Show file:line with the function and the text of the line below; the title has the full path."""
    if site is None:
        return missing_cell(reason)
    # for the module level of a script the line is enough
    note = "" if site.function == "<module>" else site.function.replace("<locals>.", "")
    return Cell(short_site(site), note=note, title=f"{site.file}:{site.line}", source=site.source, code=True)


def short_site(site: Site) -> str:
    """Return the end of the path, and the line."""
    return f"{notebook_cell(site.file) or short_path(site.file)}:{site.line}"


def short_path(path: str) -> str:
    """Return the last folders of a path."""
    parts = PurePath(path).parts
    short = path if len(parts) <= _PATH_PARTS + 1 else "…/" + "/".join(parts[-_PATH_PARTS:])
    return short if len(short) <= _PATH_CHARACTERS else "…" + short[1 - _PATH_CHARACTERS :]
