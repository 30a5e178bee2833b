"""Work between the optimizer's step and the next batch, such as a validation that is not in evaluation mode."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.analyse.model import AFTER_OPTIMIZER
from profiler.diagnose.model import NAMED
from profiler.diagnose.rule import Claim, Rule, StepCosts, phase_costs


def judge(costs: StepCosts) -> Claim | None:
    """The operators after the optimizer's step, as far as other rules leave them: rules for Python, waits, logging and
    checkpoints tell more of the rest."""
    phase = costs.phase(AFTER_OPTIMIZER)
    if phase is None or costs.has_queue:
        return None
    parts, sites = phase_costs(costs, phase)
    operators = {name: cost for name, cost in parts.items() if name in ("compute", "framework")}
    if not operators:
        return None
    # whether the program needs this work, such as averages of its parameters, is not known
    return Claim(operators, sites, {"calls": f"{phase.calls}()" if phase.calls else None}, has_gain=False)


PLUGIN = Rule(
    "work-after-update",
    "Work after the optimizer's step takes much of each step",
    ("{share:share} of each step is computing after optimizer.step().", "Most of it is in {calls}."),
    "Do it less often. If it is a validation, run it in evaluation mode and without gradients.",
    judge,
    threshold=NAMED,
    threshold_source="A tenth: some work after the update is a usual part of a step.",
    is_general=True,
    knock_out=KnockOut.STATEMENT,
)
