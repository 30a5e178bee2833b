"""Writes the reports of a check, each completely or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.check.model import GateResult
from profiler.check.outputs import json, machine
from profiler.check.outputs.machine import RepositoryPaths
from profiler.check.outputs.page import gate_report
from profiler.check.outputs.summary import render_markdown
from profiler.report.blocks import NotMeasured, Section
from profiler.report.build import build_report
from profiler.report.render import html
from profiler.report.write import write_text

if TYPE_CHECKING:
    from profiler.analyse.model import Comparison


def write_all(
    result: GateResult,
    directory: Path,
    comparison: Comparison | None = None,
    *,
    repository: RepositoryPaths | None = None,
) -> dict[str, Path]:
    """Write check.json, check.md, check.html, junit.xml and check.sarif below `directory`.

    All are rendered before the first is written, so that an error leaves the old set as it was.

    :param comparison: of both sides; its sections follow those of the check in the page.
    :param repository: names the files of sites; by default that of the working directory.
    :returns: name of each file -> its path.
    :raises ProfilerError: the folder cannot be made or written, or the disk is full.
    """
    repository = repository or RepositoryPaths.around(Path.cwd())
    # a check records a breakdown only to explain a FAIL: sections without it are left out
    sections = [
        section
        for section in (_sections(comparison) if comparison is not None else ())
        if not all(isinstance(block, NotMeasured) for block in section.blocks)
    ]
    texts = {
        "check.json": json.render(json.result_json(result)),
        "check.md": render_markdown(result),
        "check.html": html.render(gate_report(result, sections)),
        "junit.xml": machine.render_junit(result),
        "check.sarif": machine.render_sarif(result, repository),
    }
    for name, text in texts.items():
        write_text(directory / name, text)
    return {name: directory / name for name in texts}


def _sections(comparison: Comparison) -> Iterator[Section]:
    """The sections of a comparison, and the timeline of its first screen, which the page of a check does not show."""
    report = build_report(comparison)
    if report.first is not None and report.first.picture is not None:
        yield Section("timeline", "Timeline", (report.first.picture,), group="time")
    yield from (section for section in report.sections if section.key != "timeline")
