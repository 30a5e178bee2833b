"""Writes what a check leaves: every file whole or not at all, and the summary of a job."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler.check.model import GateResult
from profiler.check.outputs import codequality, json, junit, markdown, sarif
from profiler.check.outputs.page import gate_report
from profiler.check.outputs.places import Places, places
from profiler.core.errors import ProfilerError
from profiler.report.blocks import NotMeasured, Section
from profiler.report.build import build_report
from profiler.report.render import html
from profiler.report.write import write_text

if TYPE_CHECKING:
    from profiler.analyse.model import Comparison

MOST_SUMMARY: Final = 1024 * 1024
"""Bytes of a step's summary, over which GitHub shows none of it. Source: GitHub's documentation of job summaries."""
_CUT: Final = "\n\n*The rest was cut off: a summary may have 1 MiB. All of it is in check.md.*\n"


def write_all(
    result: GateResult, directory: Path, comparison: Comparison | None = None, *, where: Places | None = None
) -> dict[str, Path]:
    """Write check.json, check.md, check.html, junit.xml, check.sarif and codequality.json below `directory`.

    All are rendered before the first is written: a fault leaves the old set as it was.

    :param comparison: of both sides; its sections follow the gate's in the page.
    :param where: the repository that files of sites belong to; by default that of the working directory.
    :returns: name of each file -> its path.
    :raises ProfilerError: the folder cannot be made or written, or the disk is full.
    """
    where = places(Path.cwd()) if where is None else where
    sections = tuple(filter(_says_something, build_report(comparison).sections)) if comparison is not None else ()
    texts = {
        "check.json": json.render(json.result_json(result)),
        "check.md": markdown.render(result),
        "check.html": html.render(gate_report(result, sections)),
        "junit.xml": junit.render(result),
        "check.sarif": sarif.render(result, where),
        "codequality.json": codequality.render(result, where),
    }
    paths = {name: directory / name for name in texts}
    for name, text in texts.items():
        write_text(paths[name], text)
    return paths


def _says_something(section: Section) -> bool:
    """A check makes a breakdown pass only where it has something to explain: what it would show is not missed."""
    return not all(isinstance(block, NotMeasured) for block in section.blocks)


def append_summary(result: GateResult, path: Path) -> None:
    """Append the Markdown to `path`, which $GITHUB_STEP_SUMMARY names; without details or cut where it is too long.

    :raises ProfilerError: it cannot be written; what was in the file is left as it was.
    """
    try:
        with path.open("ab", buffering=0) as file:
            before = file.seek(0, os.SEEK_END)
            text = b"\n" * (before > 0) + summary(result, MOST_SUMMARY - before - 1)
            try:
                while text:
                    text = text[file.write(text) :]
            except OSError:
                with suppress(OSError):  # why it could not be written says more than why not undone
                    file.truncate(before)
                raise
    except OSError as error:
        raise ProfilerError(f"cannot write the job's summary {path}: {error.strerror or error}") from error


def summary(result: GateResult, room: int) -> bytes:
    """The Markdown in `room` bytes at most: whole, else without what is folded away, else cut at the end of a line."""
    for details in (True, False):
        text = markdown.render(result, details=details).encode()
        if len(text) <= room:
            return text
    kept = text[: max(0, room - len(_CUT.encode()))]
    kept = kept[: kept.rfind(b"\n") + 1]
    return (kept.rstrip() + _CUT.encode())[: max(0, room)]
