"""Work between the optimizer's step and the next batch, such as a validation that is not in evaluation mode."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from profiler.analyse.finding import KnockOut
from profiler.analyse.model import AFTER_OPTIMIZER, Phase
from profiler.diagnose.model import NAMED
from profiler.diagnose.rule import Claim, Rule, StepCosts, phase_costs

OPERATORS: Final = ("compute", "framework")
"""Categories of the work that is judged."""
_READS: Final = ("sync", "would_sync", "might_sync")
"""Kinds of calls by which the host reads a result: `item()`, `tolist()`, `float()`."""
_MOSTLY: Final = 0.5
"""Share of the work that must be at lines whose results the host reads. A choice: other work may be needed."""


def judge(costs: StepCosts) -> Claim | None:
    """The operators after the optimizer's step, as far as other rules leave them: rules for Python, waits, logging and
    checkpoints tell more of the rest."""
    phase = costs.phase(AFTER_OPTIMIZER)
    if phase is None or costs.has_queue:
        return None
    parts, sites = phase_costs(costs, phase)
    operators = {name: cost for name, cost in parts.items() if name in OPERATORS}
    if not operators:
        return None
    reads, reading = _reads(costs, phase)
    # whether the program needs other work, such as averages of its parameters, is not known
    is_told = reading >= _MOSTLY * sum(phase.categories.get(name, 0.0) for name in operators)
    values = {"calls": f"{phase.calls}()" if phase.calls else None, "reads": reads if is_told else None}
    if is_told and "python" in parts:
        operators["python"] = parts["python"]
    return Claim(operators, sites, values, has_gain=is_told)


def _reads(costs: StepCosts, phase: Phase) -> tuple[float, float]:
    """How many results the host reads per step in this phase, and what the operators take at the lines that do: metrics
    and histograms, which no training needs in each step."""
    own = {(site.file, site.line) for site in (phase.site, *(place.site for place in phase.further)) if site}
    lines = [
        line
        for line in costs.analysis.lines
        if (line.site.file, line.site.line) in own or (phase.calls and line.site.function == phase.calls)
    ]
    calls: dict[tuple[str, int], float] = {}  # hooks name files by their path, samples within the project
    for call in costs.analysis.call_sites:
        if call.kind in _READS:
            place = PurePath(call.site.file).name, call.site.line
            calls[place] = calls.get(place, 0.0) + call.calls_per_step
    reading = [line for line in lines if (PurePath(line.site.file).name, line.site.line) in calls]
    places = {(PurePath(line.site.file).name, line.site.line) for line in reading}
    seconds = sum(line.categories.get(name, 0.0) for line in reading for name in OPERATORS)
    return sum(calls[place] for place in places), seconds


PLUGIN = Rule(
    "work-after-update",
    "Work after the optimizer's step takes much of each step",
    (
        "{share:share} of each step is computing after optimizer.step().",
        "Most of it is in {calls}.",
        "The host reads {reads:count} results of it per step.",
    ),
    "Do it less often. If it is a validation, run it in evaluation mode and without gradients.",
    judge,
    threshold=NAMED,
    threshold_source="A tenth: some work after the update is a usual part of a step.",
    is_general=True,
    knock_out=KnockOut.STATEMENT,
)
