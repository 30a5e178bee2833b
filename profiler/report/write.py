"""Writes reports to files, each completely or not at all, and shows them in notebooks and after a recording."""

from __future__ import annotations

import gzip
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import Comparison, Mismatch
from profiler.analyse.model.device import RunCounts
from profiler.core.errors import ProfilerError
from profiler.core.files import replacement
from profiler.core.terminal import called_as, print_line
from profiler.report.blocks import FirstScreen
from profiler.report.build import build_report
from profiler.report.counts import compared_counts_report
from profiler.report.model import Results, exit_status, without_torch
from profiler.report.notices import describe
from profiler.report.render.console import SCREEN
from profiler.report.text import plural, relative_path, step_text
from profiler.run.model import Run, RunInfo

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


def rendered(results: Results | RunCounts, form: str) -> str:
    """Return the report of these results as one text in one of FORMATS."""
    if form == "json":
        from profiler.report.render import json

        if isinstance(results, RunCounts):
            return json.render(json.counts_json(results))
        if isinstance(results, Comparison):
            return json.render(json.compare_json(results))
        return json.render(json.analysis_json(results))
    from profiler.report.render import html, markdown

    report = build_report(results)
    return html.render(report) if form == "html" else markdown.render(report)


def write_compared_counts(sides: Sequence[RunCounts], directory: Path, differences: Sequence[Mismatch] = ()) -> Report:
    """Write compare.html, compare.md and compare.json with the counts of both sides, and return their report.

    :param differences: the facts in which the sides differ.
    """
    from profiler.report.render import html, json, markdown

    report = compared_counts_report(sides, differences)
    texts = {
        "html": html.render(report),
        "md": markdown.render(report),
        "json": json.render(json.comparison_json(sides, differences)),
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


_HEIGHT: Final = 760
"""CSS pixels of the frame where scripts are off or its content is hidden; a longer screen then scrolls within it."""
_FIT: Final = f"this.style.height = (this.contentDocument.documentElement.scrollHeight || {_HEIGHT}) + 'px'"
"""Gives the frame the height of its content, which is 0 while an inactive tab hides it. Notebooks leave the script out
until they are trusted."""


def first_screen_html(results: Results | RunCounts) -> str:
    """Return the first screen as HTML for a notebook, in a frame that keeps the styles of both apart."""
    from profiler.report.build import build_report
    from profiler.report.render import html

    page = html.render(replace(build_report(results), sections=()))
    style = f"width: 100%; height: {_HEIGHT}px; border: 0"
    title = "First screen of the report"
    return f'<iframe srcdoc="{escape(page)}" style="{style}" onload="{_FIT}" title="{title}"></iframe>'


def show_in_notebooks(cls: type, results: Callable[[Any], Results | RunCounts] = lambda value: value) -> None:
    """Give the values of a class the method by which notebooks show them.

    :param results: makes what a report is about of such a value.
    """
    cls._repr_html_ = lambda self: first_screen_html(results(self))  # type: ignore[attr-defined]


MAX_RECORDS: Final = 2_000_000
"""A run with more records is not analysed right after it was recorded: that would take too long."""
_MAX_WARNINGS: Final = 3
_NO_STEPS: Final = (
    "no steps: no optimizer stepped, no DataLoader was used, and the program does not call profiler.step()"
)
_NO_TORCH: Final = "no step: the program did not import torch, and marks no steps"
_AROUND: Final = 5
"""Lines of the summary above and below the first screen: the recording, the steps, the run directory, two commands."""


def print_summary(run: Run, analyse: Callable[[Run], Analysis]) -> None:
    """Print the summary on stderr: stdout is the target's."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    info = run.info
    seconds = ((info.end or info.begin) - info.begin) / 1e9
    has_steps = len(run.steps) > 0 and not (run.step and run.step.is_whole_run)
    counts = {"step": run.steps if has_steps else (), "sample": run.samples, "stack": run.stacks, "call": run.calls}
    ranks = len(set(run.steps["rank"].tolist()))
    of_ranks = {"step": f" of {ranks} ranks"} if ranks > 1 else {}
    counted = ", ".join(
        plural(len(table), noun) + of_ranks.get(noun, "") for noun, table in counts.items() if len(table)
    )
    head = f"recorded {info.label}: {info.state}, {seconds:.1f} s at level {info.level}"
    console.print()
    print_line(console, Text.assemble((head, "bold"), f"; {counted}" if counted else ""))
    failure = exit_status(info)
    if line := _step_line(run, failure, has_steps=has_steps):
        print_line(console, Text(f"  {line}", style="yellow" if failure else ""))
    if failure and has_steps:
        print_line(console, Text(f"  {step_text(run.step)}"))
    warnings = [*_unavailable(info), *map(describe, run.problems)]  # failed collectors are among the problems
    for warning in warnings[:_MAX_WARNINGS]:
        print_line(console, Text(f"  {warning}", style="yellow"))
    if len(warnings) > _MAX_WARNINGS:
        console.print(Text(f"  and {len(warnings) - _MAX_WARNINGS} more like this, in the report", style="yellow"))
    if len(run.steps) and (has_steps or not failure):
        _print_first_screen(run, analyse, SCREEN - _AROUND - len(warnings[: _MAX_WARNINGS + 1]))
    console.print(Text(f"  run directory: {relative_path(run.path)}"))
    for trace in sorted(run.path.glob("source-*/kineto.json.gz"))[:1]:
        console.print(Text(f"  torch's trace: {relative_path(trace)} (opens in ui.perfetto.dev)"))
    console.print(Text("  " + next_commands(run.path).replace("\n", "\n  ")))


def print_answer(run: Run, analyse: Callable[[Run], Analysis], *, brief: bool, goes_on: bool, uncertain: str) -> None:
    """Print why a program is slow on stderr, after a window of its training.

    :param brief: in one line.
    :param goes_on: the program goes on, without being recorded.
    :param uncertain: what more steps would tell; empty: nothing.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if brief:
        first = _first_screen(run, analyse)
        text = first if isinstance(first, str) else first.headline.text
        print_line(console, Text(f"{run.info.label}: {text}"))
        return
    console.print()
    _print_first_screen(run, analyse, SCREEN - _AROUND)
    seconds = ((run.info.end or run.info.begin) - run.info.begin) / 1e9
    window = f"seen: {plural(len(run.steps), 'step')} in {seconds:.0f} s"
    print_line(console, Text(f"  {window}{f'; {uncertain}' if uncertain else ''}. {_UNSEEN}"))
    if goes_on:
        print_line(console, Text("  the program goes on; nothing more of it is recorded"))
    console.print(Text(f"  run directory: {relative_path(run.path)}"))
    console.print(Text("  " + next_commands(run.path).replace("\n", "\n  ")))


_UNSEEN: Final = "What grows slowly, evaluations and checkpoints may lie outside of this window."


def _step_line(run: Run, failure: str, *, has_steps: bool) -> str:
    """Return the definition of a step, or why there is none; for a program that failed, how it failed."""
    if failure:
        scope = ": what follows is of the part before that" if has_steps else "; no step was seen"
        return f"the program {failure}{scope}"
    if not has_steps and without_torch(run.info):
        return _NO_TORCH + ("; the shares below are of the whole run" if len(run.steps) else "")
    return step_text(run.step) or ("" if run.problems else _NO_STEPS)


def _unavailable(info: RunInfo) -> list[str]:
    """Tell why something could not be recorded; a GPU that the program did not use is left out."""
    no_gpu = info.facts.get("device") != "cuda" and not info.devices
    lines = []
    for status in info.collectors:
        no_python = status.code == "hooks-not-loaded" and "flag" not in status.values
        if status.state != "unavailable" or (status.name == "gpu" and no_gpu):
            continue
        if no_python and not Path(info.argv[0]).match("*python*"):
            lines.append("no Python was seen in it: only CPU, memory and GPU are recorded of such a program")
        else:
            lines.append(f"{status.name}: {status.state}: {status.reason}")
    return lines


def _print_first_screen(run: Run, analyse: Callable[[Run], Analysis], lines: int) -> None:
    from rich.console import Console

    from profiler.report.render.console import print_first_screen

    console, first = Console(stderr=True, highlight=False), _first_screen(run, analyse)
    try:
        if not isinstance(first, str):
            print_first_screen(first, console, lines)
            return
    except Exception as error:  # noqa: BLE001 (the program runs or has run, and its exit code counts)
        first = f"the screen cannot be drawn: {type(error).__name__}: {error}"
    console.print(f"  {first}", style="yellow", markup=False)


def _first_screen(run: Run, analyse: Callable[[Run], Analysis]) -> FirstScreen | str:
    """Return the first screen of the report, or why there is none: a large run is left to the commands that follow."""
    from profiler.report.build import build_report

    records = len(run.regions) + len(run.calls) + len(run.stacks) + len(run.activities) + len(run.steps)
    if records > MAX_RECORDS:
        return f"not analysed here: {records:,} records, more than {MAX_RECORDS:,}"
    try:
        return build_report(analyse(run)).first or "nothing was measured"
    except Exception as error:  # noqa: BLE001 (the program runs or has run, and its exit code counts)
        return f"the analysis failed: {type(error).__name__}: {error}"


def next_commands(path: Path) -> str:
    """Return the commands that show more of the run in `path`."""
    run = shlex.quote(relative_path(path))
    return f"more: {called_as()} diagnose {run}\n      {called_as()} report {run}"
