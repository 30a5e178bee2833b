"""Prints the result of a check, writes its files, each completely or not at all, and the summary of a GitHub job."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from profiler.check.model import FAIL, INCONCLUSIVE, NOT_COMPARABLE, PASS, GateResult
from profiler.check.outputs import json, machine, text
from profiler.check.outputs.first_screen import gate_next_step
from profiler.check.outputs.format import RepositoryPaths
from profiler.check.outputs.page import configuration_lines, configurations_report, gate_report, rounds_table
from profiler.core.errors import ProfilerError
from profiler.report.blocks import Block, FirstScreen, Items, NotMeasured, Section
from profiler.report.build import build_report
from profiler.report.render import html, markdown
from profiler.report.write import write_text

if TYPE_CHECKING:
    from profiler.analyse.model.comparison import Comparison

CONFIGURATIONS: Final = "checks/1"
"""The schema of check.json where it is of several configurations."""
MAX_SUMMARY: Final = 1024 * 1024
"""Bytes of a step's summary; GitHub shows nothing of a longer one. Source: GitHub's documentation of job summaries."""
_ALERTS: Final = {PASS: "TIP", INCONCLUSIVE: "WARNING", NOT_COMPARABLE: "WARNING", FAIL: "CAUTION"}
"""Coloured quotes of GitHub and GitLab; elsewhere they are plain quotes."""
_LINES_BELOW: Final = 5
"""Lines below the first screen: the path of the page, the verdict, and the prompt of the shell."""
_WARNINGS: Final = 3
"""Warnings that the terminal shows. All of them are in the report."""
_COMMAND: Final = re.compile(r"(?<!\S)::|##\[")
"""What GitHub's runner takes for a command in any line that a step prints.

Source: the runner's ActionCommand.cs, TryParseV2 and TryParse.
"""


# ---------------------------------------------------------------- files


def write_all(result: GateResult, directory: Path, comparison: Comparison | None = None) -> None:
    """Write check.json, check.md, check.html, junit.xml and check.sarif below `directory`.

    All are rendered before the first is written, so that an error leaves the old set as it was.

    :param comparison: of both sides; its sections follow those of the check in the page.
    :raises ProfilerError: the folder cannot be made or written, or the disk is full.
    """
    sections = tuple(_sections(comparison)) if comparison is not None else ()
    files = {
        "check.json": json.render(json.result_json(result)),
        "check.md": render_markdown(result),
        "check.html": html.render(gate_report(result, sections)),
        "junit.xml": machine.render_junit({"": result}),
        "check.sarif": machine.render_sarif({"": result}, RepositoryPaths.around(Path.cwd())),
    }
    for name, content in files.items():
        write_text(directory / name, content)


def write_configurations(found: Mapping[str, GateResult], state: str, directory: Path) -> None:
    """Write the files of `write_all` for all configurations together.

    :param found: name of a configuration -> its result, which has its own files in its own directory.
    :param state: of all of them.
    :raises ProfilerError: as `write_all`.
    """
    repository = RepositoryPaths.around(Path.cwd())
    worst = next((each for each in found.values() if each.state == state), GateResult())
    lines = configuration_lines(found)
    checks = [
        {"name": name, "state": each.state, "sentence": each.sentence, "out": each.out} for name, each in found.items()
    ]
    listed, sentence = "\n".join(f"- {escape(line)}" for line in lines), "; ".join(lines)
    details = (f"# {escape(name)}\n\n{render_markdown(each)}" for name, each in found.items() if each.base.what)
    files = {
        "check.json": json.render(
            {
                "schema": CONFIGURATIONS,
                "next_step": gate_next_step(worst),
                "state": state,
                "sentence": sentence,
                "checks": checks,
            }
        ),
        "check.md": "\n\n".join((f"## Performance checks: {escape(state)}\n\n{listed}", *details)) + "\n",
        "check.html": html.render(configurations_report(found, state)),
        "junit.xml": machine.render_junit(found),
        "check.sarif": machine.render_sarif(found, repository),
    }
    for name, content in files.items():
        write_text(directory / name, content)


def _sections(comparison: Comparison) -> Iterator[Section]:
    """Yield the sections of a comparison, and the timeline of its first screen, which the page of a check does not
    show."""
    report = build_report(comparison)
    if report.first is not None and report.first.picture is not None:
        yield Section("timeline", "Timeline", (report.first.picture,), group="time")
    for section in report.sections:
        # a check records a breakdown only to explain a FAIL: sections without it are left out
        is_empty = all(isinstance(block, NotMeasured) for block in section.blocks)
        if section.key != "timeline" and not is_empty:
            yield section


# ---------------------------------------------------------------- the terminal


def print_result(result: GateResult, *, stream: TextIO) -> None:
    """Print a PASS as its verdict and what was not seen; any other result as its first screen, with the verdict last.

    It is in colour if the stream has colours and NO_COLOR does not forbid it.
    """
    from rich.console import Console

    from profiler.report.render.console import SCREEN, print_first_screen, print_report

    console = Console(file=stream, highlight=False)
    report = gate_report(result)
    first = report.first
    assert first is not None, "a check has a first screen"
    page = Path(result.out) / "check.html" if result.out else None
    warnings = text.warnings(result)[:_WARNINGS]
    last = FirstScreen((), first.headline)
    above = ""
    if result.state == PASS:
        last = replace(first, context=(), chips=(), why=(*first.why, *(f"Warning: {each}" for each in warnings)))
    else:
        items = (Items(warnings, "Warnings"),)
        shown = replace(report, sections=(Section("warnings", "Warnings", items, brief=items),) if warnings else ())
        with console.capture() as capture:
            print_report(shown, page=page, console=console, lines=SCREEN - _LINES_BELOW)
        above = capture.get()
    with console.capture() as capture:
        print_first_screen(last, console, SCREEN)
    # console.file also stands for a closed standard output, where `stream` is None
    console.file.write(_COMMAND.sub(lambda match: " ".join(match[0]), above + capture.get()))


# ---------------------------------------------------------------- Markdown


def render_markdown(result: GateResult, *, details: bool = True) -> str:
    """Return GitHub-flavoured Markdown; without `details` the folded parts are left out."""
    report = gate_report(result)
    assert report.first is not None, "a check has a first screen"
    parts = [f"> [!{_ALERTS.get(result.state, 'NOTE')}]\n> **{escape(result.state)}**: {escape(result.sentence)}"]
    # the tables below have what the chips have
    parts += filter(None, map(_without_mentions, markdown.first_screen(replace(report.first, chips=()))))
    for section in report.sections:
        parts += [f"## {escape(section.title)}"] if section.brief else []
        parts += [_without_mentions(markdown.draw(block, 3)) for block in section.brief]
    if details:
        if result.throughput is not None and result.throughput.rounds:
            parts.append(_folded("Every round", rounds_table(result.throughput)))
        method = [block for block in report.sections[-1].blocks if block not in report.sections[-1].brief]
        parts.append(_folded("Machine, commands and limits", method))
    return "\n\n".join((f"## Performance check: {escape(result.state)}", *parts)) + "\n"


def escape(value: str) -> str:
    """Make a text that stays text, also in a table's cell, and notifies nobody."""
    return _without_mentions(markdown.escape(value))


def _without_mentions(value: str) -> str:
    return value.replace("@", "@&#8203;")


def _folded(title: str, blocks: Iterable[Block]) -> str:
    body = _without_mentions("\n\n".join(markdown.draw(block, 3) for block in blocks))
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def append_summary(result: GateResult, path: Path) -> None:
    """Append the Markdown to `path`, which $GITHUB_STEP_SUMMARY names; without details where it would be too long.

    :raises ProfilerError: it cannot be written.
    """
    try:
        with path.open("ab") as file:
            size = file.seek(0, os.SEEK_END)
            data = render_markdown(result).encode()
            if size + len(data) >= MAX_SUMMARY:
                data = render_markdown(result, details=False).encode()
            file.write(b"\n" * (size > 0) + data)
    except OSError as error:
        raise ProfilerError(f"cannot write the job's summary {path}: {error.strerror or error}") from error
