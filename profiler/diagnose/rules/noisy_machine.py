"""Cores that other programs take, or workers and threads of the program's own."""

from __future__ import annotations

from profiler.diagnose.rule import Claim, Rule, StepCosts, take


def judge(costs: StepCosts) -> Claim | None:
    """The waits for a core that no excess of threads explains."""
    claimed = take(costs, "core")
    return Claim(claimed, has_gain=False) if claimed else None


PLUGIN = Rule(
    "noisy-machine",
    "The training thread waits for a free core",
    ("{share:share} of each step waits for a core.",),
    "Other programs take the cores, or its own workers and threads do: use a machine or a time with more free cores.",
    judge,
    is_general=True,
)
