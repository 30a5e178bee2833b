"""The names of categories and phases that a report may show: those of profiler/report/category_text.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final

from profiler.analyse.model.device import Timeline
from profiler.analyse.model.measures import DEVICE_CATEGORIES
from profiler.report.blocks import Report, Segment, Table, TimelineKind
from profiler.report.category_text import CATEGORIES, PHASES, device_label

_OF_DEVICE: Final = {name for each in DEVICE_CATEGORIES for name in (each, device_label(each))}
NAMES: Final = {text.label for text in CATEGORIES.values()} | {label for label, _ in PHASES.values()} | _OF_DEVICE
_ONLY_IN_TIMELINES: Final = {"allocate", "stream idle"}
_COLUMNS: Final = ("Category", "What it is")
"""Titles of columns that name categories."""


def assert_names(report: Report) -> None:
    """Every bar, strip, timeline and table of a report calls its parts by these names."""
    for name in _names(report):
        assert name in NAMES | _ONLY_IN_TIMELINES, f"{name!r} is no name of a category or a phase"


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, Segment | TimelineKind):
        yield value.label
    elif isinstance(value, Table):
        yield from _names_in_table(value)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _names(item)
    elif is_dataclass(value) and not isinstance(value, Timeline):
        for one in fields(value):
            yield from _names(getattr(value, one.name))


def _names_in_table(table: Table) -> Iterator[str]:
    columns = [index for index, column in enumerate(table.columns) if column.title in _COLUMNS]
    for row in table.rows:
        for index in columns:
            for part in row[index].text.split(", "):
                yield part.rstrip("0123456789% ")
