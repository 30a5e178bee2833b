"""How it was measured, warnings about the recordings, and what could not be measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from profiler.analyse.model import Missing, Topic
from profiler.core import metrics
from profiler.report.blocks import Block, Cell, Items, NotMeasured, Section, Table
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput, ReportSide, group_warnings
from profiler.report.sections.breakdown import slowdown_note
from profiler.report.table import Field, make_table, missing_cell, seconds_cell
from profiler.report.text import describe, missing_name
from profiler.run.model import CollectorStatus

T = TypeVar("T")
_Statuses = list[tuple[str, CollectorStatus]]
"""Statuses of a collector in the same state, with the labels of their sides."""
TITLE = "Method and warnings"
_COUNTED_FROM = 3
"""More gaps than this with the same reason are counted."""


def build(report_input: ReportInput) -> Section:
    """Method, warnings, gaps, collectors."""
    sides, comparison = report_input.sides, report_input.comparison
    sentences = [*(map(describe, comparison.method) if comparison else ()), slowdown_note(sides)]
    warnings = [(side.label, text) for side in sides for text in (*group_warnings(side.warnings()), *_noise(side))]
    gaps = _merge_sides([(side.label, gap) for side in sides for gap in side.missing()], len(sides))
    if comparison is None:
        gap_texts = tuple(_group_by_reason(gap for _, gap in gaps))
    else:
        gap_texts = tuple(f"{prefix}{missing_name(g)}: not measured: {describe(g.reason)}" for prefix, g in gaps)
    lists = (
        Items(tuple(filter(None, sentences)), "How it was measured"),
        Items(tuple(f"{prefix}{text}" for prefix, text in _merge_sides(warnings, len(sides))), "Warnings"),
        Items(gap_texts, "What could not be measured"),
    )
    blocks: list[Block] = [items for items in lists if items.items]
    blocks.extend(_collectors_table(sides))
    return Section(
        "method", TITLE, tuple(blocks) or (NotMeasured("the method", "these runs have no description of it"),)
    )


def _group_by_reason(gaps: Iterable[Missing]) -> Iterable[str]:
    """Each reason once, with what it is the reason for. The longest groups come last: a run without a device lacks a
    dozen measures for one reason."""
    groups: dict[str, list[Missing]] = {}
    for gap in gaps:
        groups.setdefault(describe(gap.reason), []).append(gap)
    for reason, items in sorted(groups.items(), key=lambda group: len(group[1]) > _COUNTED_FROM):
        same = len({item.topic for item in items}) == 1 and items[0].topic is not Topic.MEASURE
        names = ", ".join([_name(items[0]), *(item.item if same else _name(item) for item in items[1:])])
        counted = len(items) > _COUNTED_FROM
        yield f"{f'{len(items)} measures not measured ({names})' if counted else f'{names}: not measured'}: {reason}"


def _name(gap: Missing) -> str:
    is_measure = gap.topic is Topic.MEASURE and ("_" in gap.item or metrics.find_metric(gap.item))
    return metrics.label(gap.item) if is_measure else missing_name(gap)


def _noise(side: ReportSide) -> Iterable[str]:
    """A breakdown pass that was faster than the light runs: these differ by more than recording costs."""
    if side.slowdown is not None and side.slowdown.value is not None and side.slowdown.value < 1:
        yield (
            f"the breakdown pass was not slower than the light runs ({side.slowdown.value:.2f}×): runs of this side "
            "differ by more than recording costs, so how much it slows them down is not known"
        )


def _merge_sides(labelled: Iterable[tuple[str, T]], sides: int) -> tuple[tuple[str, T], ...]:
    """Each item once, after the labels of the sides that have it; no label where all of them do."""
    labels_of_items: dict[T, dict[str, None]] = {}
    for label, item in labelled:
        labels_of_items.setdefault(item, {})[label] = None
    return tuple(
        ("" if len(labels) == sides else f"{', '.join(labels)}: ", item) for item, labels in labels_of_items.items()
    )


def _collectors_table(sides: tuple[ReportSide, ...]) -> tuple[Table, ...]:
    """The state of each collector; those of several runs in the same state share a row, their records added up."""
    groups: dict[tuple[str, str, str], _Statuses] = {}
    for side in sides:
        for analysis in side.analyses():
            for status in analysis.info.collectors:
                groups.setdefault((status.name, status.state, status.reason), []).append((side.label, status))
    if not groups:
        return ()

    def name(row: _Statuses) -> Cell:
        labels = dict.fromkeys(label for label, _ in row)
        return Cell(row[0][1].name, note="" if len(labels) == len(sides) else ", ".join(labels))

    def number(value: int) -> Cell:
        return Cell(f"{value:,}", sort=value)

    def cost(row: _Statuses) -> Cell:
        costs = [status.cost_s for _, status in row if status.cost_s is not None]
        return seconds_cell(sum(costs)) if len(costs) == len(row) else missing_cell("not every run counted this cost")

    fields = (
        Field[_Statuses]("Collector", name),
        Field[_Statuses]("State", lambda row: Cell(row[0][1].state, note=row[0][1].reason)),
        Field[_Statuses]("Runs", lambda row: number(len(row)), number=True),
        Field[_Statuses]("Records", lambda row: number(sum(status.records for _, status in row)), number=True),
        Field[_Statuses]("Dropped", lambda row: number(sum(status.dropped for _, status in row)), number=True),
        Field[_Statuses]("CPU time of the collector", cost, number=True),
    )
    return (make_table("Collectors, all runs together", fields, groups.values()),)


PLUGIN = SectionPlugin("method", TITLE, 110, build)
