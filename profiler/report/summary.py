"""The summary in the terminal after a recording: how the program ended, what was recorded, and the verdict."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler.analyse.model import Analysis, LineCost
from profiler.core import units
from profiler.core.terminal import plain
from profiler.report.category_text import PHASES, category_label
from profiler.report.finding_text import finding_text, leading
from profiler.report.model import exit_status, load_warnings, without_torch
from profiler.report.render.console import COLOURS
from profiler.report.render.terminal import is_unicode
from profiler.report.sections.lines import callee_cell
from profiler.report.table import percent, short_site
from profiler.report.text import describe, plural, step_text
from profiler.run.model import Run, RunInfo

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

MAX_RECORDS: Final = 2_000_000
"""A run with more records is not analysed right after it was recorded: that would take too long."""
_MAX_WARNINGS: Final = 3
_NO_STEPS: Final = (
    "no steps: no optimizer stepped, no DataLoader was used, and the program does not call profiler.step()"
)
_NO_TORCH: Final = "no step: the program did not import torch, and marks no steps"
_LINES: Final = 3
_NO_CORE: Final = ("core", "throttled")
_CONTINUED: Final = " " * 4
"""Indentation of a broken line's remainder."""
_TERMINAL: Final = 80
"""Columns that a terminal has at least."""
_CODE: Final = "code"
"""The tone of a line of code, which is cut at the width of a terminal."""
_BAR: Final = 60
"""Characters of the bar."""
_FILLS: Final = "█▓▒░▞▤▥▦▚·"
_ASCII_FILLS: Final = "#=+-%$&@:."
"""Fills distinguish the parts without colour."""
ADDS: Final = "--level standard adds where the time goes: the parts of a step, lines of code, syncs and copies, stacks"


Line = tuple[tuple[str, str], ...]
"""Pieces of text with the tone of each; '' is plain."""


def summary(analysis: Analysis, *, unicode: bool = True) -> Iterator[Line]:
    """About nine lines; without steps only the verdict, and warnings about other load on the machine."""
    light, step = analysis.info.level == "light", _step_time(analysis)
    warnings = [((f"  {text}", "warning"),) for text in load_warnings(analysis.warnings)]
    if analysis.verdict and not (light and step):
        yield ((analysis.headline, "strong"),)
        yield from (((f"  {detail}", ""),) for detail in analysis.details)
        yield from (((f"  what to do: {finding_text(each).fix}", ""),) for each in leading(analysis.findings)[:1])
    if analysis.verdict and not light:
        yield from warnings
    if step:
        yield ((f"  {step}", ""),)
    if step and light:
        yield ((f"  {ADDS}", ""),)
    if light:
        yield from warnings
    yield from _phases(analysis, _FILLS if unicode else _ASCII_FILLS)
    lines = analysis.lines[:_LINES]
    width = max((len(short_site(line.site)) for line in lines), default=0)
    for line in lines:
        yield ((f"  {short_site(line.site).ljust(width)}  {_cost(line)}", ""),)
        if line.site.source:
            yield ((f"{' ' * (width + 4)}{plain(line.site.source)}", _CODE),)


def _step_time(analysis: Analysis) -> str:
    """`a step takes 13.1 ms (median; mean 70.1 ms, 95% below 249 ms), 14.3 steps/s`"""
    values = {name: measure.value for name, measure in analysis.measures.items()}
    names = ("step_time", "step_time_p50", "step_time_p95", "steps_per_s")
    mean, middle, late, rate = (values.get(name) for name in names)
    if mean is None or middle is None or late is None or rate is None:
        return ""
    tokens = values.get("tokens_per_s")
    more = f", {units.rate(tokens, analysis.measures['tokens_per_s'].unit)}" if tokens else ""
    if analysis.measures["step_time"].n == 1:
        return "" if analysis.step and analysis.step.is_whole_run else f"the one step took {units.seconds(mean)}{more}"
    spread = f"median; mean {units.seconds(mean)}, 95% below {units.seconds(late)}"
    return f"a step takes {units.seconds(middle)} ({spread}), {units.value(rate, 'steps/s')}{more}"


def _phases(analysis: Analysis, fills: str) -> Iterator[Line]:
    """A bar of the step, and below it what each fill stands for."""
    phases = [phase for phase in analysis.phases if phase.name in PHASES and phase.share > 0]
    total = sum(phase.share for phase in phases)
    edges = [round(_BAR * edge / total) for edge in accumulate((phase.share for phase in phases), initial=0.0) if total]
    bar, legends = [("  ", "")], [[("  ", "")]]
    for phase, (begin, end) in zip(phases, pairwise(edges), strict=True):
        (name, tone), fill = PHASES[phase.name], fills[list(PHASES).index(phase.name)]
        bar.append((fill * (end - begin), tone))
        entry = [(fill, tone), (f" {name} {percent(phase.share)}  ", "")]
        if sum(len(text) for text, _ in legends[-1] + entry) > _TERMINAL:
            legends.append([("  ", "")])
        legends[-1] += entry
    if phases:
        yield tuple(bar)
        yield from map(tuple, legends)


def _cost(line: LineCost) -> str:
    """`56.2%  39.4 ms a step  compute, in graph._engine_run_backward`"""
    # what the line does, and not that the machine was busy
    doing = {name: value for name, value in line.categories.items() if name not in _NO_CORE} or line.categories
    category = max(doing, key=lambda name: doing[name], default="")
    callee = f", in {callee_cell(line).text}" if line.calls else ""
    what = f"{category_label(category)}{callee}"
    return f"{percent(line.share):>6}  {units.seconds(line.seconds_per_step)} a step  {what}".rstrip()


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
    _print(console, Text.assemble((head, "bold"), f"; {counted}" if counted else ""))
    failure = exit_status(info)
    if line := _step_line(run, failure, has_steps=has_steps):
        _print(console, Text(f"  {line}", style="yellow" if failure else ""))
    if failure and has_steps:
        _print(console, Text(f"  {step_text(run.step)}"))
    warnings = [*_unavailable(info), *map(describe, run.problems)]  # failed collectors are among the problems
    for warning in warnings[:_MAX_WARNINGS]:
        _print(console, Text(f"  {warning}", style="yellow"))
    if len(warnings) > _MAX_WARNINGS:
        console.print(Text(f"  and {len(warnings) - _MAX_WARNINGS} more like this, in the report", style="yellow"))
    if len(run.steps) and (has_steps or not failure):
        _print_verdict(console, run, analyse)
    console.print(Text(f"  run directory: {relative_path(run.path)}"))
    for trace in sorted(run.path.glob("source-*/kineto.json.gz"))[:1]:
        console.print(Text(f"  torch's trace: {relative_path(trace)} (opens in ui.perfetto.dev)"))
    console.print(Text("  " + next_commands(run.path).replace("\n", "\n  ")))


def _step_line(run: Run, failure: str, *, has_steps: bool) -> str:
    """The definition of a step, or why there is none; for a program that failed, how it failed."""
    if failure:
        scope = ": what follows is of the part before that" if has_steps else "; no step was seen"
        return f"the program {failure}{scope}"
    if not has_steps and without_torch(run.info):
        return _NO_TORCH + ("; the shares below are of the whole run" if len(run.steps) else "")
    return step_text(run.step) or ("" if run.problems else _NO_STEPS)


def _unavailable(info: RunInfo) -> list[str]:
    """Why something could not be recorded; a GPU that the program did not use is left out."""
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


def _print_verdict(console: Console, run: Run, analyse: Callable[[Run], Analysis]) -> None:
    """The verdict and what explains it; a large run is left to the commands that follow."""
    from rich.text import Text

    records = len(run.regions) + len(run.calls) + len(run.stacks) + len(run.activities) + len(run.steps)
    if records > MAX_RECORDS:
        console.print(f"  not analysed here: {records:,} records, more than {MAX_RECORDS:,}")
        return
    styles = {**COLOURS, "strong": "bold", "warning": "yellow", _CODE: "cyan", "": ""}
    try:
        for line in summary(analyse(run), unicode=is_unicode(console)):
            text = Text.assemble(*((piece, styles.get(tone, "")) for piece, tone in line))
            if line[0][1] == _CODE:
                text.truncate(_TERMINAL, overflow="ellipsis")
            _print(console, text)
    except Exception as error:  # noqa: BLE001 (the program has run, and its exit code counts)
        console.print(Text(f"  the analysis failed: {type(error).__name__}: {error}", style="yellow"))


def _print(console: Console, text: Text) -> None:
    """Print a line: in a terminal broken between words, and elsewhere whole. Paths and commands to copy stay whole."""
    if not console.is_terminal or text.cell_len <= console.width:
        console.print(text)
        return
    from rich.text import Text

    for number, line in enumerate(text.wrap(console, console.width - len(_CONTINUED))):
        line.rstrip()
        console.print(line if not number else Text(_CONTINUED).append_text(line))


def next_commands(path: Path) -> str:
    """The commands that show more of the run in `path`."""
    run = shlex.quote(relative_path(path))
    return f"more: python -m profiler diagnose {run}\n      python -m profiler report {run}"


def relative_path(path: Path) -> str:
    """Relative to the working directory where it lies below that."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
