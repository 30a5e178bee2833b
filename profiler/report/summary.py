"""The answer in a few lines, right after a recording: verdict, time of a step, its parts, the most expensive lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from profiler.analyse.model import Analysis, LineCost
from profiler.core import units
from profiler.report.model import load_warnings
from profiler.report.sections.lines import PHASES, callee_cell
from profiler.report.table import percent, short_site

_LINES: Final = 3
_BAR: Final = 60
"""Characters of the bar; a terminal has at least 80."""
_FILLS: Final = "█▓▒░▚·"
_ASCII_FILLS: Final = "#=+-:."
"""Parts can be told apart without colour."""
ADDS: Final = "--level standard adds where the time goes: the parts of a step, lines of code, syncs and copies, stacks"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the summary, in pieces with the tone of each; '' is plain."""

    pieces: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """Without tones."""
        return "".join(text for text, _ in self.pieces)


def summary(analysis: Analysis, *, unicode: bool = True) -> tuple[Line, ...]:
    """At most nine lines; without steps only the verdict, and warnings about other load on the machine."""
    return tuple(_summary(analysis, unicode))


def _summary(analysis: Analysis, unicode: bool) -> Iterator[Line]:
    light = analysis.info.level == "light"
    warnings = [Line(((f"  {text}", "warning"),)) for text in load_warnings(analysis.warnings)]
    verdict = [Line(((analysis.verdict, "strong"),))] if analysis.verdict else []
    step = _step_time(analysis)
    if not light:
        yield from [*verdict, *warnings] if verdict else []
    if step:
        yield Line(((f"  {step}", ""),))
        if light:
            yield Line(((f"  {ADDS}", ""),))
    elif light:
        yield from verdict
    if light:
        yield from warnings
    yield from _phases(analysis, _FILLS if unicode else _ASCII_FILLS)
    lines = analysis.lines[:_LINES]
    width = max((len(short_site(line.site)) for line in lines), default=0)
    for line in lines:
        yield Line(((f"  {short_site(line.site).ljust(width)}  {_cost(line)}", ""),))


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
    fill = {name: fills[index] for index, name in enumerate(PHASES)}
    phases = [phase for phase in analysis.phases if phase.name in PHASES and phase.share > 0]
    if not phases:
        return
    total = sum(phase.share for phase in phases)
    edges = [round(_BAR * edge / total) for edge in accumulate((phase.share for phase in phases), initial=0.0)]
    bar: list[tuple[str, str]] = []
    legend: list[tuple[str, str]] = []
    for phase, (begin, end) in zip(phases, pairwise(edges), strict=True):
        name, tone = PHASES[phase.name]
        bar.append((fill[phase.name] * (end - begin), tone))
        legend += [(fill[phase.name], tone), (f" {name} {percent(phase.share)}  ", "")]
    yield Line((("  ", ""), *bar))
    yield Line((("  ", ""), *legend))


def _cost(line: LineCost) -> str:
    """`56.2%  39.4 ms a step  compute, in graph._engine_run_backward`"""
    category = max(line.categories, key=lambda name: line.categories[name], default="")
    callee = f", in {callee_cell(line).text}" if line.calls else ""
    return f"{percent(line.share):>6}  {units.seconds(line.seconds_per_step)} a step  {category}{callee}".rstrip()
