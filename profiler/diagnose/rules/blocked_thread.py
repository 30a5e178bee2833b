"""Waits of the training thread of which no other rule knows the reason: sleeps, locks, files, other processes."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts, take


def judge(costs: StepCosts) -> Claim | None:
    """The waits that other rules leave."""
    claimed = take(costs, "waiting")
    return Claim(claimed, costs.sites("waiting")) if claimed else None


PLUGIN = Rule(
    "blocked-thread",
    "The training thread is blocked",
    ("{share:share} of each step is spent waiting, much of it in {site:function}.",),
    "Do what it waits for in another thread or process, and collect the result in a later step.",
    judge,
    is_general=True,
    knock_out=KnockOut.STATEMENT,
)
