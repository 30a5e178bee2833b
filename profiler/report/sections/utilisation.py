"""CPU and device utilisation over time: small plots with the same axes, one per side."""

from __future__ import annotations

from collections.abc import Iterable

from profiler.analyse.model import Series
from profiler.core.metrics import find_metric
from profiler.report.blocks import Block, Curve, Lines, NotMeasured, Panel, Section, side_tone
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput, ReportSide
from profiler.report.table import quantity

TITLE = "Utilisation over time"
_LEARNING = frozenset({"loss", "accuracy", "heldout_loss", "heldout_accuracy"})
"""Series that are no utilisation: what a model learns."""
_SHARE_UNITS = frozenset({"1", "", "share"})
_PERCENT_UNITS = frozenset({"%", "percent"})
_MAX_CURVES = 6
"""More lines in one panel cannot be told apart."""


def build(report_input: ReportInput) -> Section:
    """One figure for each unit that was sampled."""
    sides = report_input.sides
    units = dict.fromkeys(series.unit for side in sides for series in _series(side))
    blocks: list[Block] = [_lines(sides, unit) for unit in sorted(units, key=_order)]
    reason = "no step was measured over which it could be drawn"
    blocks += [NotMeasured(f"utilisation over time of {side.label}", reason) for side in sides if not _series(side)]
    return Section("utilisation", TITLE, tuple(blocks))


def _order(unit: str) -> tuple[int, str]:
    first = (*sorted(_SHARE_UNITS | _PERCENT_UNITS), "cores")
    return (first.index(unit) if unit in first else len(first) + (not unit.endswith("/s")), unit)


def _series(side: ReportSide) -> tuple[Series, ...]:
    """Series of the first light run that was sampled, else of the breakdown pass."""
    for analysis in (*side.runs, side.detailed):
        series = tuple(item for item in analysis.series if item.name not in _LEARNING and len(item.times) > 1)
        if series:
            return series
    return ()


def _lines(sides: tuple[ReportSide, ...], unit: str) -> Lines:
    by_side = [(side, [item for item in _series(side) if item.unit == unit][:_MAX_CURVES]) for side in sides]
    names = list(dict.fromkeys(item.name for _, series in by_side for item in series))
    is_share = unit in _SHARE_UNITS or unit in _PERCENT_UNITS
    scale, shown = (100.0 if unit in _SHARE_UNITS else 1.0, "%") if is_share else _scale(unit, by_side)
    panels = []
    for side, series in by_side:
        curves = tuple(
            Curve(
                _label(item.name),
                side_tone(names.index(item.name)) if len(names) > 1 else side.tone,
                item.times,
                tuple(scale * value for value in item.values),
            )
            for item in series
        )
        if curves:
            panels.append(Panel(side.label, curves))
    caption = ", ".join(_label(name) for name in names)
    return Lines(caption, "seconds", shown, tuple(panels), y_max=100.0 if is_share else None)


def _scale(unit: str, by_side: Iterable[tuple[ReportSide, list[Series]]]) -> tuple[float, str]:
    """A factor, and the unit after it: an axis of bytes is in MB or GB."""
    largest = max(max(item.values) for _, series in by_side for item in series)
    if unit not in {"bytes", "s"} or not largest:
        return 1.0, unit
    number, shown = quantity(largest, unit)
    return float(number.replace(",", "")) / largest, shown


def _label(name: str) -> str:
    metric = find_metric(name)
    return metric.label if metric else name.replace("_", " ")


PLUGIN = SectionPlugin("utilisation", TITLE, 40, build)
