"""Data that ranks exchange between the optimizer's step and the next batch, such as metrics that they gather."""

from __future__ import annotations

from profiler.analyse.finding import GainMethod
from profiler.analyse.model import AFTER_OPTIMIZER
from profiler.diagnose.rule import Claim, Cost, Rule, StepCosts


def judge(costs: StepCosts) -> Claim | None:
    """What ranks wait for each other after the optimizer's step, where no rank is later than the others."""
    phase, ledger = costs.phase(AFTER_OPTIMIZER), costs.analysis.ranks
    if phase is None or not phase.seconds_per_step or costs.has_queue:
        return None
    if ledger is None or ledger.straggler or ledger.reason:
        return None
    waits = phase.categories.get("ranks", 0.0) / phase.seconds_per_step
    backward = costs.phase("backward")
    backward_site = backward.site if backward else None
    sites = tuple(site for site in costs.sites("ranks") if site != backward_site)
    if not waits or not sites:
        return None
    cost = Cost(phase.seconds_per_step, phase.low * costs.seconds, phase.high * costs.seconds).part(waits)
    # a rank that waits less here may wait longer for the others in its next backward pass
    values = {"calls": f"{phase.calls}()" if phase.calls else None}
    return Claim({"ranks": cost}, sites, values, method=GainMethod.ESTIMATE)


PLUGIN = Rule(
    "exchange-after-update",
    "Ranks exchange data after the optimizer's step",
    ("{share:share} of each step goes to that, besides the exchange of gradients.", "Most of it is in {calls}."),
    "Keep metrics on each rank, and gather them only in the steps that are logged.",
    judge,
)
