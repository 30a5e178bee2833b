"""Finds the sections and builds the Report of a comparison or a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from profiler.analyse.model import RunCounts
from profiler.core.plugins import call_plugin, discover, entry_points
from profiler.report.blocks import Block, Report, Section
from profiler.report.counts import count_report
from profiler.report.first_screen import first_screen
from profiler.report.model import ReportInput, Results
from profiler.report.text import local_time

WITHOUT_STEPS = frozenset({"verdict", "doing", "environment", "method"})
"""Sections that can show something about an attached job, or a program that failed before its first step."""


@dataclass(frozen=True, slots=True)
class SectionPlugin:
    """A section of the report: one of `sections/`, or an entry point of the group `training_profiler.sections`."""

    name: str
    """Anchor of the section in a page."""
    title: str
    order: int
    build: Callable[[ReportInput], Section | None]
    """None: the section has nothing to report."""
    json: Callable[[ReportInput], Mapping[str, Any]] | None = None
    """Top-level keys that the section adds to the JSON report of a comparison or a run."""
    group: str = "evidence"
    """One of `profiler.report.blocks.GROUPS`."""


def section(
    name: str, title: str, order: int, group: str, brief: Callable[[ReportInput], Iterable[Block]] = lambda _: ()
) -> Callable[[Callable[[ReportInput], Iterable[Block]]], SectionPlugin]:
    """Declare a function that yields the blocks of a section, none where it has nothing to report.

    :param group: one of `profiler.report.blocks.GROUPS`.
    :param brief: yields what a terminal shows of the section by default.
    """

    def declare(blocks: Callable[[ReportInput], Iterable[Block]]) -> SectionPlugin:
        def build(report_input: ReportInput) -> Section | None:
            content = tuple(blocks(report_input))
            return Section(name, title, content, tuple(brief(report_input))) if content else None

        return SectionPlugin(name, title, order, build, group=group)

    return declare


def section_plugins() -> tuple[SectionPlugin, ...]:
    """All sections, in the order in which a report shows them."""
    plugins = (*discover("profiler.report.sections"), *entry_points("sections").values())
    return tuple(sorted(plugins, key=lambda plugin: (plugin.order, plugin.name)))


def build_report(results: Results | RunCounts) -> Report:
    """Build the report of a comparison, of a run or of its counts, without sections of other packages that fail."""
    if isinstance(results, RunCounts):
        return count_report(results)
    report_input = ReportInput.from_results(results)
    foreign = entry_points("sections").values()
    sections = []
    for plugin in section_plugins():
        if report_input.without_steps and plugin.name not in WITHOUT_STEPS:
            continue
        if plugin in foreign:
            content = call_plugin(f"{plugin.name} (section)", plugin.build, report_input)
        else:
            content = plugin.build(report_input)
        if content is not None:
            sections.append(replace(content, group=plugin.group))
    comparison, analysis = report_input.comparison, report_input.analysis
    if comparison is not None:
        title, kind, time = comparison.title, "Comparison", comparison.created_at
    else:
        assert analysis is not None
        title, kind, time = analysis.info.label or analysis.info.run_id or "run", "Run", analysis.info.started_at
    subtitle = f"{kind} · {report_input.devices} · {local_time(time)}"
    return Report(title, subtitle, tuple(sections), first_screen(report_input, local_time(time)))
