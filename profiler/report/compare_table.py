"""The table that most sections need: a measure a row, a side a column, and the ratio over the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from profiler.core.metrics import is_share, label
from profiler.report.blocks import Cell, Column, Table
from profiler.report.quantities import measure_cell, named_unit, ratio_cell
from profiler.report.subject import Subject, View, ratio, views


def compare_table(
    subject: Subject,
    names: Sequence[str],
    caption: str,
    *,
    spread: bool = False,
    note: str = "",
    notes: Mapping[str, str] | None = None,
) -> Table:
    """Rows of `names` with a column per side and, from the second side on, its ratio; `notes` below the names."""
    sides = views(subject)
    columns = [Column("Measure")]
    for index, view in enumerate(sides):
        columns.append(Column(view.label, number=True, tone=view.tone))
        if index:
            columns.append(Column("Ratio" if len(sides) == 2 else f"{view.label} / {sides[0].label}", number=True))
    rows = tuple(_row(subject, sides, name, spread=spread, note=(notes or {}).get(name, "")) for name in names)
    return Table(caption, tuple(columns), rows, note)


def _row(subject: Subject, sides: tuple[View, ...], name: str, *, spread: bool, note: str) -> tuple[Cell, ...]:
    before = sides[0].measure(name)
    unit = next((named for view in sides if (named := named_unit(view.measure(name).unit))), "")
    cells = [Cell(f"{label(name)}, {unit}" if unit and name != "steps_per_s" else label(name), note=note)]
    for index, view in enumerate(sides):
        measured = view.measure(name)
        cells.append(measure_cell(measured, share=is_share(name), spread=spread, bare=True))
        if index:
            cells.append(ratio_cell(ratio(subject, view.label, name), before, measured))
    return tuple(cells)
