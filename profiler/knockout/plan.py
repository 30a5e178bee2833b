"""Tells what a trial of a finding changes in the program: new texts of source files, or settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from profiler.analyse.model.finding import Finding, KnockOut
from profiler.analyse.model.measures import CORELESS_CATEGORIES
from profiler.core.errors import Notice
from profiler.knockout.source import ChangedSource, skip_lines, stop_threads_at
from profiler.run.model import Site
from profiler.run.trials import SkippedLine

LOADER_SETTINGS: Final = frozenset(("loader", "replay"))
"""Settings that change a DataLoader."""
_CHANGES: Final[Mapping[KnockOut, Callable[[str, Sequence[int], str, int], ChangedSource]]] = {
    KnockOut.STATEMENT: skip_lines,
    KnockOut.LINE: partial(skip_lines, only_line=True),
    KnockOut.THREAD: stop_threads_at,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How the program runs without the cause of a finding."""

    finding: Finding
    texts: Mapping[str, str] = field(default_factory=dict)
    """File -> its text in the trial."""
    lines: tuple[SkippedLine, ...] = ()
    """What these texts skip, in the order of their numbers."""
    cause: frozenset[int] = frozenset()
    """Numbers of those that hold the first site: unless one of them is skipped, the cause is still there."""
    settings: Mapping[str, Any] = field(default_factory=dict)


def plan_trial(finding: Finding, folders: Sequence[Path], recorded_at: float) -> Plan | Notice:
    """Return the plan for a finding, or why it cannot be tried.

    :param folders: the files of sites are relative to one of these.
    :param recorded_at: when the run began, in seconds of the Unix epoch: files that were changed later have other
        lines.
    """
    rule = finding.rule
    if finding.is_of_run:
        return Notice("not-of-steps")
    if rule.knock_out is None:
        is_wait = bool(finding.costs) and finding.costs.keys() <= set(CORELESS_CATEGORIES)
        return Notice("wait-for-core" if is_wait else "no-knock-out")
    if rule.knock_out is not KnockOut.SETTINGS:
        has_line = finding.sites or finding.values.get("thread_site")
        return _source_plan(finding, folders, recorded_at) if has_line else Notice("no-line")
    settings = finding.filled_settings()
    if settings is None:
        return Notice("no-knock-out" if finding.values.get("made_anew") else "no-value")
    loader = finding.values.get("loader_site")
    if loader is not None and settings.keys() & LOADER_SETTINGS:
        file = _file(loader, folders)
        try:
            if _has_changed(file, recorded_at):
                return Notice("source-changed", {"file": str(file)})
        except OSError as error:
            return Notice("source-unreadable", {"file": str(file), "error": str(error)})
        settings["loader_at"] = [str(file), loader.line]
    return Plan(finding, settings=settings)


def _file(site: Site, folders: Sequence[Path]) -> Path:
    """Return the file of a site; where there is none, the one that is missing."""
    files = [(folder / site.file).resolve() for folder in folders]
    return next((file for file in files if file.is_file()), files[0])


def _has_changed(file: Path, recorded_at: float) -> bool:
    """Return whether a file was changed after the run began, so that its lines may be others.

    :raises OSError: there is no such file, or its folder may not be read.
    """
    return file.stat().st_mtime > recorded_at


def _source_plan(finding: Finding, folders: Sequence[Path], recorded_at: float) -> Plan | Notice:
    is_thread = finding.rule.knock_out is KnockOut.THREAD
    change = _CHANGES[finding.rule.knock_out or KnockOut.STATEMENT]
    sites = [finding.values["thread_site"]] if is_thread and finding.values.get("thread_site") else finding.sites
    lines_by_file: dict[Path, list[int]] = {}
    for site in sites:
        lines_by_file.setdefault(_file(site, folders), []).append(site.line)
    texts: dict[str, str] = {}
    skipped: list[SkippedLine] = []
    refusals: list[Notice] = []
    for file, lines in lines_by_file.items():
        try:
            if _has_changed(file, recorded_at):
                refusals.append(Notice("source-changed", {"file": str(file)}))
                continue
            changed = change(file.read_text(encoding="utf-8"), lines, str(file), len(skipped))
        except (OSError, ValueError, SyntaxError) as error:
            refusals.append(Notice("source-unreadable", {"file": str(file), "error": str(error)}))
            continue
        refusals += changed.refusals
        if changed.skipped:
            texts[str(file)] = changed.text
            skipped += changed.skipped
    first = next(iter(lines_by_file))
    cause = frozenset(
        number
        for number, each in enumerate(skipped)
        if each.file == str(first) and each.line <= sites[0].line <= each.end
    )
    return Plan(finding, texts, tuple(skipped), cause) if cause else refusals[0]
