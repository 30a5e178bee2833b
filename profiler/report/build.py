"""Finds the sections and builds the Report of a comparison or a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from profiler.core.plugins import call_plugin, discover, entry_points
from profiler.report.blocks import Report, Section
from profiler.report.model import MissingReasons, ReportInput, Results

WITHOUT_STEPS = frozenset({"verdict", "doing", "environment", "method"})
"""Sections that can show something about an attached job, or a program that failed before its first step.

`doing` is the section of `sections/threads.py`."""


@dataclass(frozen=True, slots=True)
class SectionPlugin:
    """What a module in `sections/`, or an entry point of the group `training_profiler.sections`, offers."""

    name: str
    """Anchor of the section in a page."""
    title: str
    order: int
    build: Callable[[ReportInput], Section | None]
    """None: the section has nothing to report."""
    json: Callable[[ReportInput, MissingReasons], Mapping[str, Any]] | None = None
    """Top-level keys that the section adds to the JSON report of a comparison or a run."""


def section_plugins() -> tuple[SectionPlugin, ...]:
    """All sections, in the order in which a report shows them."""
    plugins = (*discover("profiler.report.sections"), *foreign_sections())
    return tuple(sorted(plugins, key=lambda plugin: (plugin.order, plugin.name)))


def foreign_sections() -> tuple[SectionPlugin, ...]:
    """The sections of other packages."""
    return tuple(entry_points("sections").values())


def build_report(results: Results) -> Report:
    """The report of a comparison or of a single run. A foreign section that fails is left out."""
    report_input = ReportInput.from_results(results)
    without_steps = report_input.is_attached or report_input.failed_before_first_step
    foreign = foreign_sections()
    sections = []
    for plugin in section_plugins():
        if without_steps and plugin.name not in WITHOUT_STEPS:
            continue
        if plugin in foreign:
            section = call_plugin(f"{plugin.name} (section)", plugin.build, report_input)
        else:
            section = plugin.build(report_input)
        if section is not None:
            sections.append(section)
    comparison, analysis = report_input.comparison, report_input.analysis
    if comparison is not None:
        title, kind, time = comparison.title, "Comparison", comparison.created_at
    else:
        assert analysis is not None
        title, kind, time = analysis.info.label or analysis.info.run_id or "run", "Run", analysis.info.started_at
    return Report(title, f"{kind} · {report_input.devices} · {local_time(time)}", tuple(sections))


def local_time(text: str) -> str:
    """An ISO 8601 time to the minute, for people; any other text as it is."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return text
    zone = " UTC" if parsed.utcoffset() == timedelta(0) else parsed.strftime(" %z")
    return parsed.strftime("%Y-%m-%d %H:%M") + zone.rstrip()
