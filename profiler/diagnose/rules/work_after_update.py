"""Recognizes work between the optimizer's step and the next batch, as of a validation not in evaluation mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from profiler.analyse.finding import KnockOut
from profiler.analyse.model import AFTER_OPTIMIZER, LineCost
from profiler.diagnose.model import NAMED
from profiler.diagnose.rule import NOTHING, Claim, Cost, Rule, StepCosts, phase_costs, total_seconds
from profiler.diagnose.rules._frames import concatenations, deep_copies, mostly_waits
from profiler.diagnose.rules._metrics import host_reads, lines_of, lines_read
from profiler.diagnose.rules._operators import small_operators
from profiler.diagnose.rules._periodic import extra_seconds, other_spikes, work_values
from profiler.run.model import Site

OPERATORS: Final = ("compute", "framework")
"""Categories of the work that is judged."""
_MOSTLY: Final = 0.5
"""Share of the work that must be at lines whose results the host reads, or of other work in every so many steps. A
choice: other work may be needed."""


def judge(costs: StepCosts) -> Claim | None:
    """The operators after the optimizer's step, as far as other rules leave them: rules for Python, waits, logging and
    checkpoints tell more of the rest."""
    phase = costs.phase(AFTER_OPTIMIZER)
    if phase is None or costs.has_queue:
        return None
    parts, sites = phase_costs(costs, phase)
    own = lines_of(costs, phase)
    operators = _without(own, costs, {name: cost for name, cost in parts.items() if name in OPERATORS})
    if not operators:
        return None
    # metrics and histograms are needed by no training in each step
    reading, computing = lines_read(own, host_reads(costs))
    read = sum(line.categories.get(name, 0.0) for line in computing for name in OPERATORS)
    # whether the program needs other work, such as averages of its parameters, is not known
    is_told = read >= _MOSTLY * sum(phase.categories.get(name, 0.0) for name in operators)
    if not is_told and _is_periodic(costs, sites, total_seconds(operators)):
        return None
    reads = sum(call.calls_per_step for call in reading) if is_told else None
    values = {**work_values(costs, phase.calls), "reads": reads}
    # a rule for Python tells more of work that is mostly Python
    if is_told and "python" in parts and parts["python"].seconds <= total_seconds(operators):
        operators["python"] = parts["python"]
    return Claim(operators, sites, values, has_gain=is_told, is_most=True)


def _is_periodic(costs: StepCosts, sites: tuple[Site, ...], seconds: float) -> bool:
    """Whether most of this work is that of every so many steps at the same line, of which `periodic-work` tells."""
    spikes = other_spikes(costs)
    if spikes is None or spikes.share < NAMED or [line.site for line in spikes.lines[:1]] != [*sites[:1]]:
        return False
    return extra_seconds(costs, spikes) >= _MOSTLY * seconds


def _without(lines: Iterable[LineCost], costs: StepCosts, operators: Mapping[str, Cost]) -> dict[str, Cost]:
    """The operators of a phase but those of which other rules tell more: small ones, those of copies, and what is
    computed at lines that mostly wait, such as one that starts a program."""
    calling = small_operators(costs)
    copies = {line.site: line for line in (*deep_copies(costs), *concatenations(costs))}
    told = dict.fromkeys(operators, 0.0)
    for line in lines:
        for name in operators:
            small = calling.get(line.site, {}).get(name, NOTHING).seconds
            copied = copies[line.site].categories.get(name, 0.0) if line.site in copies else 0.0
            told[name] += line.categories.get(name, 0.0) if mostly_waits(line) else small + copied
    return {
        name: cost.part(1.0 - told[name] / cost.seconds)
        for name, cost in operators.items()
        if cost.seconds > told[name]
    }


PLUGIN = Rule(
    "work-after-update",
    "Work after the optimizer's step takes time",
    (
        "{share:share} of each step is computing after optimizer.step().",
        "Most of it is in {calls}.",
        "The host reads {reads:results} of it per step.",
    ),
    "Do it less often. If it is a validation, run it in evaluation mode and without gradients.",
    judge,
    fixes=(
        "Run {validation} less often, in evaluation mode and without gradients.",
        "Run {calls} less often.",
    ),
    threshold=NAMED,
    threshold_source="A tenth: some work after the update is a usual part of a step.",
    is_general=True,
    knock_out=KnockOut.STATEMENT,
)
