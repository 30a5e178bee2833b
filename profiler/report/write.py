"""Writes the reports of a comparison or a run: HTML, Markdown and JSON, each completely or not at all."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler.analyse.model import Analysis, Comparison
from profiler.core.atomic_file import replacement
from profiler.core.errors import ProfilerError
from profiler.report.build import build_report
from profiler.report.model import Results

FORMATS = ("html", "md", "json")
_COMPRESSION: Final = 6  # of 9: a third of the time for 3% more bytes


@dataclass(frozen=True, slots=True)
class Written:
    """Paths of the three reports."""

    html: Path
    markdown: Path
    json: Path


def write_comparison(comparison: Comparison, directory: Path) -> Written:
    """Write compare.html, compare.md and compare.json below `directory`."""
    return _write(comparison, directory, "compare")


def write_analysis(analysis: Analysis, directory: Path) -> Written:
    """Write report.html, report.md and report.json below `directory`."""
    return _write(analysis, directory, "report")


def rendered(results: Results, form: str) -> str:
    """The report of these results as one text in one of FORMATS."""
    if form == "json":
        from profiler.report.render import json

        if isinstance(results, Comparison):
            return json.render(json.compare_json(results))
        return json.render(json.analysis_json(results))
    report = build_report(results)
    if form == "html":
        from profiler.report.render import html

        return html.render(report)
    if form == "md":
        from profiler.report.render import markdown

        return markdown.render(report)
    raise ValueError(f"unknown format {form!r}: one of {', '.join(FORMATS)}")


def _write(results: Results, directory: Path, stem: str) -> Written:
    # all three are rendered before the first is written, so that an error leaves the old set as it was
    texts = {form: rendered(results, form) for form in FORMATS}
    paths = {form: directory / f"{stem}.{form}" for form in FORMATS}
    for form, text in texts.items():
        write_text(paths[form], text)
    return Written(paths["html"], paths["md"], paths["json"])


def write_text(path: Path, text: str) -> None:
    """Replace the report at `path` in one move.

    :raises ProfilerError: the folder cannot be made or written, or the disk is full.
    """
    write_chunks(path, (text,), what="the report ")


def write_chunks(path: Path, chunks: Iterable[str], *, what: str = "") -> None:
    """Replace `path` in one move with a text that comes in chunks; compressed where its name ends in .gz.

    :param what: what the file is, for the error.
    :raises ProfilerError: the folder cannot be made or written, or the disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacement(path) as file:
            if path.suffix != ".gz":
                file.writelines(chunk.encode() for chunk in chunks)
                return
            # without name and time in it the same run gives the same bytes
            with gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0) as compressed:
                compressed.writelines(chunk.encode() for chunk in chunks)
    except OSError as error:
        raise ProfilerError(f"cannot write {what}{path}: {error.strerror or error}") from error
