"""Recognizes input that a trace shows by its functions or operators only, while the device is idle."""

from __future__ import annotations

from profiler.diagnose.rule import Claim, Rule, StepCosts, take


def judge(costs: StepCosts) -> Claim | None:
    """The idle time in which the host prepared input, of runs without recorded parts of it: other rules know more."""
    if not costs.has_queue or costs.analysis.input:
        return None
    claimed = take(costs, "input")
    return Claim(claimed, costs.sites("input")) if claimed else None


PLUGIN = Rule(
    "exposed-input",
    "The device is idle while the host prepares input",
    ("It is idle {share:share} of the time for this reason.", "Much of it is in {site:function}."),
    "Let the workers of a DataLoader prepare batches while the device computes, or prepare them on the device.",
    judge,
    is_general=True,
)
