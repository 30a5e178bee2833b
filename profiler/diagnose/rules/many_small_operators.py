"""Operators so small that torch takes longer to call them than they take to compute."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts, take


def judge(costs: StepCosts) -> Claim | None:
    """The time in torch's own code around operators, which other rules leave."""
    if costs.has_queue:  # what its kernels take is known then: other rules judge it
        return None
    claimed = take(costs, "framework")
    operators = costs.analysis.value("launches_per_step")
    return Claim(claimed, costs.sites("framework"), {"launches": operators}) if claimed else None


PLUGIN = Rule(
    "many-small-operators",
    "Many small operators: calling them takes longer than what they compute",
    (
        "{share:share} of each step is torch's own work around operators.",
        "The host launches {launches:count} of them per step.",
    ),
    "Use fewer and larger operators: larger batches, one operator instead of a loop, torch.compile.",
    judge,
    threshold_source="A tenth: some of this time remains in every program.",
    threshold=0.1,
    is_general=True,
    knock_out=KnockOut.STATEMENT,
)
