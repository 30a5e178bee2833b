"""Waits of the training thread of which no other rule knows the reason: sleeps, locks, files, other processes."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts, take


def judge(costs: StepCosts) -> Claim | None:
    """The waits that other rules leave."""
    claimed = take(costs, "waiting")
    if not claimed:
        return None
    sites, backward = costs.sites("waiting"), costs.phase("backward")
    # in a backward pass torch itself waits, for memory or for its threads: no change of the program removes that
    is_of_torch = bool(sites) and backward is not None and sites[0] == backward.site
    return Claim(claimed, sites, has_gain=not is_of_torch)


PLUGIN = Rule(
    "blocked-thread",
    "The training thread is blocked",
    ("{share:share} of each step is spent waiting, much of it in {site:function}.",),
    "Do what it waits for in another thread or process, and collect the result in a later step.",
    judge,
    is_general=True,
    knock_out=KnockOut.STATEMENT,
)
