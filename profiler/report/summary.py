"""The answer in a few lines, right after a recording: verdict, time of a step, its parts, the lines that cost most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from profiler.analyse.model import Analysis, LineCost
from profiler.core import units
from profiler.report.doubts import company
from profiler.report.quantities import percent, short_site
from profiler.report.sections.lines import NAMES, within

_LINES: Final = 3
_BAR: Final = 60
"""Characters of the bar; a terminal has 80 at least."""
_FILLS: Final = "█▓▒░▚·"
_ASCII_FILLS: Final = "#=+-:."
"""A part can be told from the next one without colour."""
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
    """At most nine lines; without steps only the verdict, which says so, and what else ran on the machine."""
    return tuple(_summary(analysis, unicode))


def _summary(analysis: Analysis, unicode: bool) -> Iterator[Line]:
    light = analysis.info.level == "light"
    if analysis.verdict and not light:
        yield Line(((analysis.verdict, "strong"),))
        yield from _company(analysis)
    if step := _step(analysis):
        yield Line(((f"  {step}", ""),))
        if light:
            yield Line(((f"  {ADDS}", ""),))
    elif light and analysis.verdict:
        yield Line(((analysis.verdict, "strong"),))
    if light:
        yield from _company(analysis)
    yield from _parts(analysis, _FILLS if unicode else _ASCII_FILLS)
    width = max((len(short_site(line.site)) for line in analysis.lines[:_LINES]), default=0)
    for line in analysis.lines[:_LINES]:
        yield Line(((f"  {short_site(line.site).ljust(width)}  {_cost(line)}", ""),))


def _company(analysis: Analysis) -> Iterator[Line]:
    """Other work on the machine, below what it qualifies."""
    yield from (Line(((f"  {note}", "warning"),)) for note in company(analysis.warnings))


def _step(analysis: Analysis) -> str:
    """`a step takes 13.1 ms (median; mean 70.1 ms, 95% below 249 ms), 14.3 steps/s`"""
    found = {name: measure.value for name, measure in analysis.measures.items()}
    mean, middle, late, rate = (
        found.get(name) for name in ("step_time", "step_time_p50", "step_time_p95", "steps_per_s")
    )
    if mean is None or middle is None or late is None or rate is None:
        return ""
    tokens = found.get("tokens_per_s")
    more = f", {units.rate(tokens, analysis.measures['tokens_per_s'].unit)}" if tokens else ""
    if analysis.measures["step_time"].n == 1:
        return "" if analysis.step and analysis.step.is_whole_run else f"the one step took {units.seconds(mean)}{more}"
    spread = f"median; mean {units.seconds(mean)}, 95% below {units.seconds(late)}"
    return f"a step takes {units.seconds(middle)} ({spread}), {units.value(rate, 'steps/s')}{more}"


def _parts(analysis: Analysis, fills: str) -> Iterator[Line]:
    """A bar of the step, and below it what each fill stands for."""
    named = [(NAMES[part.name], part.share) for part in analysis.phases if part.name in NAMES and part.share > 0]
    if not named:
        return
    fill = {name: fills[at] for at, name in enumerate(name for name, _ in NAMES.values())}
    whole = sum(share for _, share in named)
    edges = [round(_BAR * edge / whole) for edge in accumulate((share for _, share in named), initial=0.0)]
    bar = [(fill[name] * (b - a), tone) for ((name, tone), _), (a, b) in zip(named, pairwise(edges), strict=True)]
    yield Line((("  ", ""), *bar))
    legend = [((fill[name], tone), (f" {name} {percent(share)}  ", "")) for (name, tone), share in named]
    yield Line((("  ", ""), *(piece for pair in legend for piece in pair)))


def _cost(line: LineCost) -> str:
    """`56.2%  39.4 ms a step  compute, in graph._engine_run_backward`"""
    mostly = max(line.categories, key=lambda name: line.categories[name], default="")
    inside = f", in {within(line).text}" if line.calls else ""
    return f"{percent(line.share):>6}  {units.seconds(line.seconds_per_step)} a step  {mostly}{inside}".rstrip()
