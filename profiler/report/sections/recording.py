"""Shows the recording itself: its timeline, the environment of each side, the method, warnings, and what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from profiler.analyse.model.analysis import LOADED_MACHINE
from profiler.analyse.model.comparison import ABSENT, GIT_COMMIT
from profiler.analyse.model.measures import Missing, Topic
from profiler.core import metrics
from profiler.core.facts import fact_rows, stated_device
from profiler.report.blocks import Block, Cell, Column, Items, NotMeasured, Table, Text
from profiler.report.build import section
from profiler.report.model import NO_BREAKDOWN_PASS, ReportInput, ReportSide, group_warnings
from profiler.report.notices import describe
from profiler.report.sections.breakdown import slowdown_note
from profiler.report.table import Field, make_table, missing_cell, seconds_cell
from profiler.report.text import commit_text, missing_name
from profiler.report.timeline import main_timeline, timeline_chart
from profiler.run.model import CollectorStatus, RunInfo

T = TypeVar("T")

# ---------------------------------------------------------------- the timeline


@section("timeline", "Timeline", 11, "time")
def timeline(report_input: ReportInput) -> Iterator[Block]:
    """Show the host and the device in a typical step, unless the first screen shows them."""
    chart = None if main_timeline(report_input) else timeline_chart(report_input.sides)
    if chart is not None:
        yield chart
    elif report_input.comparison is not None:
        # tell why a side is not in the timeline of the first screen; say nothing where there is no timeline at all
        for side in report_input.sides if main_timeline(report_input) else ():
            recorded = side.detailed.timeline
            if side.detail is None:
                yield NotMeasured(f"timeline of {side.label}", NO_BREAKDOWN_PASS)
            elif recorded is not None and recorded.reason is not None:
                yield NotMeasured(f"timeline of {side.label}", describe(recorded.reason))


# ---------------------------------------------------------------- the environment

_FOLDER: Final = re.compile(r"(?:[^\s'\"]*/(?=[^\s/]))?")
"""The folder of the program at the begin of a command; empty for none."""
_DEVICE_FACTS = frozenset({"device", "device_label", "device_name"})
"""Facts that the row of the device shows."""


@section("environment", "Environment", 110, "evidence")
def environment(report_input: ReportInput) -> Iterator[Block]:
    """Show what differs between the sides, their commands among it, and the facts that they share."""
    comparison = report_input.comparison
    if comparison is None:
        yield _name_value_table("This run", _environment_rows(report_input.sides[0].info))
        return
    commands = [side.command for side in comparison.sides]
    rows = [
        (Cell(name), *(Cell(_value_text(name, value)) for value in values))
        for name, values in (*comparison.packages, *comparison.differences)
        if any(values)
    ]
    if any(commands):
        texts = _without_same_folder(commands)
        cells = (Cell(text, title=command, code=True) for text, command in zip(texts, commands, strict=True))
        rows.append((Cell("command"), *cells))
    if not comparison.differences and not comparison.packages:
        yield Text("No difference between the environments of the sides was seen.")
    if rows:
        columns = (Column("Differs"), *(Column(side.label, tone=side.tone) for side in report_input.sides))
        yield Table("What differs between the sides", columns, tuple(rows))
    if comparison.environment:
        yield _name_value_table("The same on all sides", comparison.environment)
    elif comparison.sides and comparison.sides[0].runs:
        side = comparison.sides[0]
        yield _name_value_table(f"Environment of {side.label}", _environment_rows(side.runs[0].info))


def _without_same_folder(commands: Sequence[str]) -> list[str]:
    """Return the commands without the folder of their program, if all have the same one.

    In half a page, a path to Python would leave no room for what differs. A folder that differs is what differs.
    """
    folders = {found.group() for command in commands if command and (found := _FOLDER.match(command))}
    return [command.removeprefix(*folders) for command in commands] if len(folders) == 1 else list(commands)


def _name_value_table(caption: str, rows: Iterable[tuple[str, str]]) -> Table:
    cells = tuple((Cell(name), Cell(_value_text(name, value))) for name, value in rows if value.strip())
    return Table(caption, (Column("What"), Column("Value")), cells)


def _value_text(name: str, value: str) -> str:
    return commit_text("" if value == ABSENT else value) if name == GIT_COMMIT else value


def _environment_rows(info: RunInfo) -> tuple[tuple[str, str], ...]:
    """Return name and value of each fact that a manifest states about the machine and the program."""
    facts = {name: value for name, value in info.facts.items() if name not in _DEVICE_FACTS}
    return (
        ("device", stated_device(info.facts, info.devices)),
        ("command", " ".join(info.argv)),
        ("state", info.state),
        ("level", info.level),
        ("started", info.started_at),
        (GIT_COMMIT, info.git_commit or ABSENT),
        *fact_rows(info.host).items(),
        *((f"GPU {index}", str(device.get("name", "unnamed"))) for index, device in enumerate(info.devices)),
        *fact_rows(facts).items(),
        *((f"{name} version", version) for name, version in info.versions.items() if name not in facts),
    )


# ---------------------------------------------------------------- the method

_Statuses = list[tuple[str, CollectorStatus]]
"""Statuses of a collector in the same state, with the labels of their sides."""
_DID_NOT_RUN = ("off", "unavailable")
"""States of collectors that cost nothing and recorded nothing."""
_COUNTED_FROM = 3
"""More gaps than this with the same reason are counted."""


@section("method", "Method and warnings", 100, "evidence")
def method(report_input: ReportInput) -> Iterator[Block]:
    """Tell how it was measured, what is doubtful about it, what could not be measured, and what was recorded."""
    sides, comparison = report_input.sides, report_input.comparison
    sentences = [*(map(describe, comparison.method) if comparison else ()), slowdown_note(sides)]
    warnings = [
        (side.label, text)
        for side in sides
        for text in (
            *group_warnings(warning for warning in side.warnings() if warning.code not in LOADED_MACHINE),
            *_noise(side),
        )
    ]
    gaps = _merge_sides([(side.label, gap) for side in sides for gap in side.missing()], len(sides))
    warnings_of = _merge_sides(warnings, len(sides))
    lists = {
        "How it was measured": list(filter(None, sentences)),
        # a side has some ten of them: they are one list of its own
        "Warnings": [*warnings_of.pop("", ()), *(f"{label}{'; '.join(texts)}" for label, texts in warnings_of.items())],
        "What could not be measured": [
            f"{label}{text}" for label, items in gaps.items() for text in _group_by_reason(items)
        ],
    }
    blocks: list[Block] = [Items(tuple(items), title) for title, items in lists.items() if items]
    blocks += _collectors_table(sides)
    yield from blocks or (NotMeasured("the method", "these runs have no description of it"),)


def _group_by_reason(gaps: Iterable[Missing]) -> Iterator[str]:
    """Name each reason once, after everything that was not measured for that reason.

    The longest groups come last, because a run without a device lacks a dozen measures for one reason.
    """
    groups: dict[str, list[Missing]] = {}
    for gap in gaps:
        groups.setdefault(describe(gap.reason), []).append(gap)
    for reason, items in sorted(groups.items(), key=lambda group: len(group[1]) > _COUNTED_FROM):
        same = len({item.topic for item in items}) == 1 and items[0].topic is not Topic.MEASURE
        names = ", ".join([_gap_name(items[0]), *(item.item if same else _gap_name(item) for item in items[1:])])
        counted = len(items) > _COUNTED_FROM
        yield f"{f'{len(items)} measures not measured ({names})' if counted else f'{names}: not measured'}: {reason}"


def _gap_name(gap: Missing) -> str:
    is_measure = gap.topic is Topic.MEASURE and ("_" in gap.item or metrics.find_metric(gap.item))
    return metrics.label(gap.item) if is_measure else missing_name(gap)


def _noise(side: ReportSide) -> Iterator[str]:
    """Warn of a breakdown pass that was faster than the light runs: these differ by more than recording costs."""
    if side.slowdown is not None and side.slowdown.value is not None and side.slowdown.value < 1:
        yield (
            f"the breakdown pass was not slower than the light runs ({side.slowdown.value:.2f}×): runs of this side "
            "differ by more than recording costs, so how much it slows them down is not known"
        )


def _merge_sides(labelled: Iterable[tuple[str, T]], sides: int) -> dict[str, list[T]]:
    """Group items by the labels of the sides that have them, as a prefix: empty where all sides do."""
    labels_of_items: dict[T, dict[str, None]] = {}
    for label, item in labelled:
        labels_of_items.setdefault(item, {})[label] = None
    groups: dict[str, list[T]] = {}
    for item, labels in labels_of_items.items():
        groups.setdefault("" if len(labels) == sides else f"{', '.join(labels)}: ", []).append(item)
    return groups


def _collectors_table(sides: tuple[ReportSide, ...]) -> Iterator[Table]:
    """The collectors that ran. Those of several runs in the same state share a row, which has the sum of their records.

    The list of what could not be measured tells why a collector did not run.
    """
    groups: dict[tuple[str, str, str], _Statuses] = {}
    for side in sides:
        for analysis in side.analyses():
            for status in analysis.info.collectors:
                if status.state not in _DID_NOT_RUN:
                    groups.setdefault((status.name, status.state, status.reason), []).append((side.label, status))

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
    if groups:
        yield make_table("Collectors, all runs together", fields, groups.values())


PLUGINS = (timeline, method, environment)
