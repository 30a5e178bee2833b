"""Recognizes data that ranks exchange between the optimizer's step and the next batch, such as gathered metrics."""

from __future__ import annotations

from profiler.analyse.finding import GainMethod
from profiler.analyse.model import AFTER_OPTIMIZER, Phase
from profiler.diagnose.rule import Claim, Cost, Rule, StepCosts, largest_sites
from profiler.run.model import Site


def judge(costs: StepCosts) -> Claim | None:
    """What ranks wait for each other after the optimizer's step, where no rank is later than the others."""
    phase, ledger = costs.phase(AFTER_OPTIMIZER), costs.analysis.ranks
    if phase is None or not phase.seconds_per_step or costs.has_queue:
        return None
    if ledger is None or ledger.straggler or ledger.reason:
        return None
    waits = phase.categories.get("ranks", 0.0) / phase.seconds_per_step
    backward = costs.phase("backward")
    sites = _sites(costs, phase, backward.site if backward else None)
    if not waits or not sites:
        return None
    cost = Cost(phase.seconds_per_step, phase.low * costs.seconds, phase.high * costs.seconds).part(waits)
    # a rank that waits less here may wait longer for the others in its next backward pass
    values = {"calls": f"{phase.calls}()" if phase.calls else None}
    return Claim({"ranks": cost}, sites, values, method=GainMethod.ESTIMATE)


def _sites(costs: StepCosts, phase: Phase, gradients: Site | None) -> tuple[Site, ...]:
    """The lines at which ranks wait in this phase: in the function that it calls, or else its own lines. In other
    phases they wait too, such as for statistics of batches in the forward pass."""
    own = largest_sites([phase.site, *(place.site for place in phase.further)])
    within = [site for site in costs.sites("ranks") if site in own or (phase.calls and site.function == phase.calls)]
    return tuple(site for site in (within or own) if site != gradients)


PLUGIN = Rule(
    "exchange-after-update",
    "Ranks exchange data after the optimizer's step",
    ("{share:share} of each step goes to that, besides the exchange of gradients.", "Most of it is in {calls}."),
    "Keep metrics on each rank, and gather them only in the steps that are logged.",
    judge,
)
