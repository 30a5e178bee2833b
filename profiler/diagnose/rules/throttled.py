"""Recognizes a CPU quota of the container that the program uses up."""

from __future__ import annotations

from profiler.diagnose.rule import Claim, Rule, StepCosts, take


def judge(costs: StepCosts) -> Claim | None:
    """The time without a core because of the quota, which no excess of threads explains."""
    claimed = take(costs, "throttled")
    return Claim(claimed, (), {"quota": costs.number("cpu_quota")}) if claimed else None


PLUGIN = Rule(
    "throttled",
    "The container's CPU quota is used up",
    ("{share:share} of each step has no core because of the quota.", "The quota is {quota:number} cores."),
    "Give the container more CPU, or use fewer threads and workers.",
    judge,
    is_general=True,
)
