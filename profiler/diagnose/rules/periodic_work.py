"""Recognizes work in every so many steps, such as a validation, that takes much of the time of all."""

from __future__ import annotations

from typing import Final

from profiler.analyse.finding import KnockOut
from profiler.analyse.model import CORELESS_CATEGORIES, UNATTRIBUTED
from profiler.diagnose.input import diagnose_input
from profiler.diagnose.model import NAMED, InputAdvice
from profiler.diagnose.rule import Claim, Rule, StepCosts, exactly
from profiler.diagnose.rules._periodic import extra_seconds, other_spikes, work_values

_NOT_WORK: Final = (*CORELESS_CATEGORIES, UNATTRIBUTED)
_MOSTLY: Final = 0.5
"""Share of input in the extra time from which starting workers explains it. A choice: half."""


def judge(costs: StepCosts) -> Claim | None:
    """The extra time of regular long steps, where samples tell its line, and no recorded stage that another rule
    judges takes most of it."""
    spikes = other_spikes(costs)
    if spikes is None:
        return None
    line, parts = spikes.lines[0], spikes.categories
    found = diagnose_input(costs.analysis)
    if found and found.advice is InputAdvice.PERSISTENT_WORKERS and parts.get("input", 0.0) >= _MOSTLY:
        return None  # a library starts workers in functions of its own, and `workers-started-anew` tells of that
    # input of a function that only long steps call, such as a validation, is a part of that work and no cause beside it
    if not parts or (line.calls and parts.get("input", 0.0) >= NAMED):
        parts = {name: cost.seconds for name, cost in costs.categories.items()}
    working = {name: part for name, part in parts.items() if name not in _NOT_WORK and costs.cost(name).seconds}
    whole, extra = sum(working.values()), extra_seconds(costs, spikes)
    if not whole:
        return None
    claimed = {name: exactly(min(costs.cost(name).seconds, extra * part / whole)) for name, part in working.items()}
    values = {"every": spikes.every, "times": spikes.times, **work_values(costs, line.calls)}
    # what other rules leave of a category may lie in other steps too
    return Claim(claimed, tuple(each.site for each in spikes.lines[:3]), values, is_exclusive=False, is_most=True)


PLUGIN = Rule(
    "periodic-work",
    "Every {every:nth} step does extra work",
    ("These steps take {times:number} times as long as the others.", "Most of the extra work is in {calls}."),
    "Do it less often, or on less data. If it is a validation, run it in evaluation mode and without gradients.",
    judge,
    fixes=(
        "Run {validation} less often, or on less data, in evaluation mode and without gradients.",
        "Run {calls} less often, or on less data.",
    ),
    threshold=NAMED,
    is_general=True,
    threshold_source="A tenth: validation, logging and checkpoints that take less are a usual part of a training.",
    knock_out=KnockOut.STATEMENT,
)
