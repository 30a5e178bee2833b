"""Helps the rules about the time outside of steps."""

from __future__ import annotations

from typing import Final

from profiler.analyse.model import Period, Stage
from profiler.diagnose.rule import MAX_SITES, StepCosts
from profiler.run.model import Site

LONG_S: Final = 30.0
"""Seconds outside of the steps, with imports, from which they are told. A choice: importing torch takes up to 20 s
beside other programs on two cores."""
LONG_OWN_S: Final = 10.0
"""The same for seconds without imports, which the program itself spends. A choice."""
MUCH: Final = 0.2
"""Share of the run from which they are told. A choice: of a run of 150 s, 30 s."""


def stage_seconds(costs: StepCosts, *stages: Stage) -> tuple[float, float]:
    """Seconds of these stages, and their share of the run."""
    chosen = [time for time in costs.analysis.stages if time.stage in stages]
    return sum(time.seconds for time in chosen), sum(time.share for time in chosen)


def run_seconds(costs: StepCosts) -> float:
    """Seconds of the whole run; 0: not known."""
    info = costs.analysis.info
    return (info.end - info.begin) * 1e-9 if info.begin and info.end else 0.0


def period_sites(costs: StepCosts, period: Period) -> tuple[Site, ...]:
    """The lines that take most of a period in which no step is measured."""
    lines = next((each.lines for each in costs.analysis.startup_teardown if each.period is period), ())
    return tuple(line.site for line in lines[:MAX_SITES])
