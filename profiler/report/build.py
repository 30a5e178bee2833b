"""Finds the sections and builds a Report of a Comparison or an Analysis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from profiler.analyse.model import Comparison
from profiler.core.plugins import call_plugin, discover, entry_points
from profiler.report.blocks import Report, Section
from profiler.report.subject import Subject, devices, failed_first, looked_at, views

OF_THREADS = frozenset({"verdict", "doing", "environment", "method"})
"""Sections that can say something of a job that was looked at from outside, or that failed before its first step."""


@dataclass(frozen=True, slots=True)
class SectionPlugin:
    """What a module in `sections/`, or an entry point of the group `training_profiler.sections`, offers."""

    name: str
    """Anchor of the section in a page."""
    title: str
    order: int
    build: Callable[[Subject], Section | None]
    """None: the section has nothing to say about this subject."""


def section_plugins() -> tuple[SectionPlugin, ...]:
    """All sections, in the order in which a report shows them."""
    plugins = (*discover("profiler.report.sections"), *map(_guarded, entry_points("sections").values()))
    return tuple(sorted(plugins, key=lambda plugin: (plugin.order, plugin.name)))


def _guarded(plugin: SectionPlugin) -> SectionPlugin:
    """The section of another package, which is left out of a report where building it fails."""

    return replace(plugin, build=lambda subject: call_plugin(f"{plugin.name} (section)", plugin.build, subject))


def moment(text: str) -> str:
    """An ISO 8601 time as people read it, to the minute; any other text as it is."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return text
    zone = " UTC" if parsed.utcoffset() == timedelta(0) else parsed.strftime(" %z")
    return parsed.strftime("%Y-%m-%d %H:%M") + zone.rstrip()


def build_report(subject: Subject) -> Report:
    """The report of a comparison or of a single run."""
    few = looked_at(subject) or failed_first(subject)
    chosen = [plugin for plugin in section_plugins() if not few or plugin.name in OF_THREADS]
    built = (plugin.build(subject) for plugin in chosen)
    sections = tuple(section for section in built if section is not None)
    if isinstance(subject, Comparison):
        return Report(subject.title, f"Comparison · {devices(views(subject))} · {moment(subject.created_at)}", sections)
    info = subject.info
    return Report(
        info.label or info.run_id or "run", f"Run · {devices(views(subject))} · {moment(info.started_at)}", sections
    )
