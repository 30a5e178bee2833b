"""Renders and writes the report of a comparison or a run, each file completely or not at all."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler.analyse.model import Comparison, Mismatch, RunCounts
from profiler.core.errors import ProfilerError
from profiler.core.files import replacement
from profiler.report.build import build_report
from profiler.report.model import Results

if TYPE_CHECKING:
    from profiler.report.blocks import Report

FORMATS = ("html", "md", "json")
_COMPRESSION: Final = 6  # of 9: a third of the time for 3% more bytes


def write_comparison(comparison: Comparison, directory: Path) -> Path:
    """Write compare.html, compare.md and compare.json below `directory`; the path of the page."""
    # all three are rendered before the first is written, so that an error leaves the old set as it was
    texts = {form: rendered(comparison, form) for form in FORMATS}
    for form, text in texts.items():
        write_text(directory / f"compare.{form}", text)
    return directory / "compare.html"


def rendered(results: Results, form: str) -> str:
    """The report of these results as one text in one of FORMATS."""
    if form == "json":
        from profiler.report.render import json

        if isinstance(results, Comparison):
            return json.render(json.compare_json(results))
        return json.render(json.analysis_json(results))
    from profiler.report.render import html, markdown

    report = build_report(results)
    return html.render(report) if form == "html" else markdown.render(report)


def counts_rendered(counted: RunCounts, form: str) -> str:
    """The counts of a run by line, in one of FORMATS or for a terminal (`text`)."""
    from profiler.report import count_text
    from profiler.report.count_page import count_report
    from profiler.report.next_step import counts_next_step
    from profiler.report.render import html, json, markdown

    if form == "text":
        return "\n".join(count_text.count_lines(counted, limit=len(counted.counts)))
    if form == "json":
        return json.render({"next_step": counts_next_step(counted), **count_text.counts_json(counted)})
    report = count_report(counted)
    return html.render(report) if form == "html" else markdown.render(report)


def write_compared_counts(sides: Sequence[RunCounts], directory: Path, differences: Sequence[Mismatch] = ()) -> Report:
    """Write compare.html, compare.md and compare.json with the counts of both sides, and return their report.

    :param differences: the facts in which the sides differ.
    """
    from profiler.report import count_text
    from profiler.report.count_page import compared_counts_report
    from profiler.report.next_step import counts_next_step
    from profiler.report.render import html, json, markdown

    report = compared_counts_report(sides, differences)
    texts = {
        "html": html.render(report),
        "md": markdown.render(report),
        "json": json.render(
            {
                "next_step": counts_next_step(sides[-1]),
                **count_text.comparison_json(sides, differences),
            }
        ),
    }
    for form, text in texts.items():
        write_text(directory / f"compare.{form}", text)
    return report


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
