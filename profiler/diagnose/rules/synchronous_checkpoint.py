"""Checkpoints that the training thread writes itself, often."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts, take
from profiler.diagnose.rules._periodic import checkpoint_costs


def judge(costs: StepCosts) -> Claim | None:
    """The time in which checkpoints are written, and of other work for them where it comes in regular steps."""
    claimed = checkpoint_costs(costs) or take(costs, "checkpoint")
    return Claim(claimed, costs.sites("checkpoint")) if claimed else None


PLUGIN = Rule(
    "synchronous-checkpoint",
    "The training waits while checkpoints are written",
    ("{share:share} of each step goes to writing checkpoints.",),
    "Write checkpoints less often, or copy the state to the host and write it in a thread.",
    judge,
    knock_out=KnockOut.STATEMENT,
)
