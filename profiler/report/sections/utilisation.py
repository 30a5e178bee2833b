"""CPU and device utilisation over time: small plots with the same axes, a side each."""

from __future__ import annotations

from collections.abc import Iterable

from profiler.analyse.model import Series
from profiler.core.metrics import find_metric
from profiler.report.blocks import Block, Curve, Lines, NotMeasured, Panel, Section, side_tone
from profiler.report.build import SectionPlugin
from profiler.report.quantities import quantity
from profiler.report.subject import Subject, View, views

TITLE = "Utilisation over time"
LEARNING = frozenset({"loss", "accuracy", "heldout_loss", "heldout_accuracy"})
_SHARE_UNITS = frozenset({"1", "", "share"})
_PERCENT_UNITS = frozenset({"%", "percent"})
_MOST_CURVES = 6
"""Lines in one panel beyond which nobody can follow one."""


def build(subject: Subject) -> Section:
    """One figure for each unit that was sampled."""
    sides = views(subject)
    units = dict.fromkeys(series.unit for view in sides for series in _series(view))
    blocks: list[Block] = [_lines(sides, unit) for unit in sorted(units, key=_order)]
    for view in sides:
        if not _series(view):
            reason = "no step was measured over which it could be drawn"
            blocks.append(NotMeasured(f"utilisation over time of {view.label}", reason))
    return Section("utilisation", TITLE, tuple(blocks))


def _order(unit: str) -> tuple[int, str]:
    known = (*sorted(_SHARE_UNITS | _PERCENT_UNITS), "cores")
    return (known.index(unit) if unit in known else len(known) + (not unit.endswith("/s")), unit)


def _series(view: View) -> tuple[Series, ...]:
    """Of the first light run that was sampled, else of the breakdown pass; what a model learned has its own section."""
    for analysis in (*view.runs, view.any_detail):
        found = tuple(series for series in analysis.series if series.name not in LEARNING and len(series.times) > 1)
        if found:
            return found
    return ()


def _lines(sides: tuple[View, ...], unit: str) -> Lines:
    found = [(view, [series for series in _series(view) if series.unit == unit][:_MOST_CURVES]) for view in sides]
    names = list(dict.fromkeys(series.name for _, several in found for series in several))
    shared = unit in _SHARE_UNITS or unit in _PERCENT_UNITS
    scale, shown = (100.0 if unit in _SHARE_UNITS else 1.0, "%") if shared else _size(unit, found)
    panels = []
    for view, several in found:
        curves = tuple(
            Curve(
                _name(s.name),
                side_tone(names.index(s.name)) if len(names) > 1 else view.tone,
                s.times,
                tuple(scale * value for value in s.values),
            )
            for s in several
        )
        if curves:
            panels.append(Panel(view.label, curves))
    caption = ", ".join(_name(name) for name in names)
    return Lines(caption, "seconds", shown, tuple(panels), y_max=100.0 if shared else None)


def _size(unit: str, found: Iterable[tuple[View, list[Series]]]) -> tuple[float, str]:
    """What to multiply by, and the unit after that: an axis of bytes reads in MB or GB."""
    if unit not in {"bytes", "s"}:
        return 1.0, unit
    largest = max(max(series.values) for _, several in found for series in several)
    if not largest:
        return 1.0, unit
    number, shown = quantity(largest, unit)
    return float(number.replace(",", "")) / largest, shown


def _name(name: str) -> str:
    metric = find_metric(name)
    return metric.label if metric else name.replace("_", " ")


PLUGIN = SectionPlugin("utilisation", TITLE, 40, build)
