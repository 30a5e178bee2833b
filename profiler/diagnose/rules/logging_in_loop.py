"""Recognizes logging that takes much of each step."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts, take


def judge(costs: StepCosts) -> Claim | None:
    """The time in logging."""
    claimed = take(costs, "log")
    return Claim(claimed, costs.sites("log")) if claimed else None


PLUGIN = Rule(
    "logging-in-loop",
    "Logging takes much of each step",
    ("{share:share} of each step goes to logging.",),
    "Log every 50th step or so, and keep sums of what is logged in between as tensors.",
    judge,
    code="if step % 50 == 0:",
    knock_out=KnockOut.LINE,
)
