"""Work between the optimizer's step and the next batch, such as a validation that is not in evaluation mode."""

from __future__ import annotations

import ast
from pathlib import PurePath
from typing import Final

from profiler.analyse.finding import KnockOut
from profiler.analyse.model import AFTER_OPTIMIZER, Phase
from profiler.diagnose.model import NAMED
from profiler.diagnose.rule import Claim, Rule, StepCosts, phase_costs
from profiler.run.model import Site

OPERATORS: Final = ("compute", "framework")
"""Categories of the work that is judged."""
_READS: Final = ("sync", "would_sync", "might_sync")
"""Kinds of calls by which the host reads a result: `item()`, `tolist()`, `float()`."""
_MOSTLY: Final = 0.5
"""Share of the work that must be at lines whose results the host reads, or that call no operator of torch. A choice:
other work may be needed."""


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
    """How many results the host reads per step in this phase, and what computing takes at these lines and at those
    without operators of torch: metrics and histograms, which no training needs in each step."""
    own = {(site.file, site.line) for site in (phase.site, *(place.site for place in phase.further)) if site}
    lines = [
        line
        for line in costs.analysis.lines
        if (line.site.file, line.site.line) in own or (phase.calls and line.site.function == phase.calls)
    ]
    calls: dict[tuple[str, int], float] = {}  # hooks name files by their path, samples within the project
    names: dict[tuple[str, str], set[str]] = {}
    for call in costs.analysis.call_sites:
        if call.kind in _READS:
            file = PurePath(call.site.file).name
            calls[file, call.site.line] = calls.get((file, call.site.line), 0.0) + call.calls_per_step
            names.setdefault((file, _function(call.site)), set()).update(_names(call.site.source, ast.Load))
    reading = {line.site: (PurePath(line.site.file).name, line.site.line) for line in lines}
    reading = {site: place for site, place in reading.items() if place in calls}
    told = [
        line
        for line in lines
        if line.site in reading
        or _names(line.site.source, ast.Store) & names.get((PurePath(line.site.file).name, _function(line.site)), set())
        or _is_outside_torch(costs, line.site)
    ]
    seconds = sum(line.categories.get(name, 0.0) for line in told for name in OPERATORS)
    return sum(calls[place] for place in set(reading.values())), seconds


def _function(site: Site) -> str:
    """The function of a line; before Python 3.12 a comprehension is one of its own within it."""
    return site.function.partition(".<locals>.<")[0]


def _names(source: str, context: type[ast.expr_context]) -> set[str]:
    """The variables that a line of source uses, or assigns; none where the line is only a part of a statement."""
    try:
        tree = ast.parse(source.strip())
    except SyntaxError:
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}


def _is_outside_torch(costs: StepCosts, site: Site) -> bool:
    """Whether a line calls no operator of torch, such as one that computes a metric with NumPy. They are counted in a
    few steps, which work of regular long steps may not be in."""
    spikes, counted = costs.analysis.spikes, {row.site for row in costs.analysis.operators if row.site}
    places = {(each.file, each.line) for each in counted}
    return bool(places) and not (spikes and spikes.every) and (site.file, site.line) not in places


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
