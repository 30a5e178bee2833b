"""How it was measured, what to doubt, and what could not be measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from profiler.analyse.model import Comparison, Missing, Topic
from profiler.core import metrics
from profiler.report.blocks import Block, Cell, Column, Items, NotMeasured, Section, Table
from profiler.report.build import SectionPlugin
from profiler.report.doubts import alike
from profiler.report.quantities import missing_cell, seconds_cell
from profiler.report.sections.breakdown import slowdown_note
from profiler.report.subject import Subject, View, views
from profiler.report.text import describe, missing_name
from profiler.run.model import CollectorStatus

T = TypeVar("T")

_NAMED = 3
"""Things with one reason from which on they are counted."""

TITLE = "Method and doubts"


def build(subject: Subject) -> Section:
    """Method, doubts, gaps, collectors."""
    sides = views(subject)
    sentences = [*(map(describe, subject.method) if isinstance(subject, Comparison) else ()), slowdown_note(sides)]
    blocks: list[Block] = []
    if any(sentences):
        blocks.append(Items(tuple(sentence for sentence in sentences if sentence), "How it was measured"))
    said = [(view.label, note) for view in sides for note in (*alike(view.warnings()), *_noise(view))]
    doubts = _merged(said, len(sides))
    if doubts:
        blocks.append(Items(tuple(f"{prefix}{note}" for prefix, note in doubts), "What to doubt"))
    gaps = _merged([(view.label, gap) for view in sides for gap in view.missing()], len(sides))
    if gaps:
        items = tuple(f"{prefix}{missing_name(gap)}: not measured: {describe(gap.reason)}" for prefix, gap in gaps)
        if not isinstance(subject, Comparison):
            items = tuple(_by_reason(gap for _, gap in gaps))
        blocks.append(Items(items, "What could not be measured"))
    blocks.extend(_collectors(sides))
    return Section("method", TITLE, tuple(blocks) or (NotMeasured("the method", "these runs say nothing of it"),))


def _by_reason(gaps: Iterable[Missing]) -> Iterable[str]:
    """Each reason once, with what it is the reason for: a run without a device lacks a dozen measures for one, and that
    comes last."""
    groups: dict[str, list[Missing]] = {}
    for gap in gaps:
        groups.setdefault(describe(gap.reason), []).append(gap)
    for reason, things in sorted(groups.items(), key=lambda group: len(group[1]) > _NAMED):
        same = len({thing.topic for thing in things}) == 1 and things[0].topic is not Topic.MEASURE
        said = ", ".join([_name(things[0]), *(thing.item if same else _name(thing) for thing in things[1:])])
        counted = f"{len(things)} measures not measured ({said})" if len(things) > _NAMED else f"{said}: not measured"
        yield f"{counted}: {reason}"


def _name(gap: Missing) -> str:
    is_measure = gap.topic is Topic.MEASURE and ("_" in gap.item or metrics.find_metric(gap.item))
    return metrics.label(gap.item) if is_measure else missing_name(gap)


def _noise(view: View) -> Iterable[str]:
    """A breakdown pass that was quicker than what it is held against: recording costs less than the runs differ by."""
    if view.slowdown is not None and view.slowdown.value is not None and view.slowdown.value < 1:
        yield (
            f"the breakdown pass was not slower than the light runs ({view.slowdown.value:.2f}×): runs of this side "
            "differ by more than recording costs, so how much it slows them down is not known"
        )


def _merged(said: Iterable[tuple[str, T]], sides: int) -> tuple[tuple[str, T], ...]:
    """Each thing once, after the labels of the sides that say it; no label where all of them do."""
    by_thing: dict[T, dict[str, None]] = {}
    for label, thing in said:
        by_thing.setdefault(thing, {})[label] = None
    return tuple(
        ("" if len(labels) == sides else f"{', '.join(labels)}: ", thing) for thing, labels in by_thing.items()
    )


def _collectors(sides: tuple[View, ...]) -> tuple[Table, ...]:
    """How the collectors fared; those of several runs that fared alike share a row, their records added up."""
    groups: dict[tuple[str, str, str], list[tuple[str, CollectorStatus]]] = {}
    for view in sides:
        for run in dict.fromkeys(id(run) for run in (*view.runs, *((view.detail,) if view.detail else ()))):
            found = next(one for one in (*view.runs, view.detail) if one is not None and id(one) == run)
            for status in found.info.collectors:
                groups.setdefault((status.name, status.state, status.reason), []).append((view.label, status))
    if not groups:
        return ()
    columns: tuple[Column, ...] = (Column("Collector"), Column("State"), Column("Runs", number=True))
    columns += tuple(Column(title, number=True) for title in ("Records", "Dropped", "Its own CPU time"))
    rows = tuple(_row(statuses, len(sides)) for statuses in groups.values())
    return (Table("Collectors, all runs together", columns, rows),)


def _row(said: list[tuple[str, CollectorStatus]], sides: int) -> tuple[Cell, ...]:
    labels = dict.fromkeys(label for label, _ in said)
    first = said[0][1]
    costs = [status.cost_s for _, status in said]
    known = [cost for cost in costs if cost is not None]
    cost = seconds_cell(sum(known)) if len(known) == len(costs) else missing_cell("not every run counted this cost")
    return (
        Cell(first.name, note="" if len(labels) == sides else ", ".join(labels)),
        Cell(first.state, note=first.reason),
        Cell(f"{len(said)}", sort=len(said)),
        *(
            Cell(f"{number:,}", sort=number)
            for number in (sum(s.records for _, s in said), sum(s.dropped for _, s in said))
        ),
        cost,
    )


PLUGIN = SectionPlugin("method", TITLE, 110, build)
