"""Copies that no computing hides, of which no other rule knows why they take long."""

from __future__ import annotations

from profiler.analyse.model import COPYING
from profiler.diagnose.model import NAMED
from profiler.diagnose.rule import Claim, Rule, StepCosts, copy_sites, take


def judge(costs: StepCosts) -> Claim | None:
    """The time in which a device only copies, as far as other rules leave it."""
    claimed = take(costs, COPYING)
    return Claim(claimed, copy_sites(costs)) if claimed else None


PLUGIN = Rule(
    "exposed-copies",
    "The device copies while no kernel computes",
    ("It only copies {share:share} of the time.",),
    "Copy the next batch while the device computes, on a stream of its own; copy less, or smaller types.",
    judge,
    threshold=NAMED,
    threshold_source="A tenth: the first copy of a step can seldom be hidden.",
    is_general=True,
)
