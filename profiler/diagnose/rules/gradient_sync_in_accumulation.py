"""Gradients that all ranks synchronize after each backward pass, though the optimizer steps after several."""

from __future__ import annotations

from typing import Final

from profiler.analyse.finding import GainMethod
from profiler.analyse.model import COMMUNICATING
from profiler.diagnose.rule import Claim, Cost, Rule, StepCosts, largest_sites
from profiler.run.tables import REPEATED_GRADIENT_SYNCS

_MOST_STEPS: Final = 0.5
"""Repeated synchronizations per step from which a program accumulates gradients. A choice: it does so in each step."""


def judge(costs: StepCosts) -> Claim | None:
    """The part of the communication, and of waits for other ranks in backward passes, that the sum of the gradients
    does not need: all synchronizations of a step but the last."""
    repeated = costs.analysis.value(f"{REPEATED_GRADIENT_SYNCS}_per_step") or 0.0
    if repeated < _MOST_STEPS:
        return None
    needless = repeated / (repeated + 1.0)
    claimed: dict[str, Cost] = {}
    for name in (COMMUNICATING, "ranks"):
        if costs.cost(name).seconds > 0:
            claimed[name] = costs.cost(name).part(needless)
    backward = costs.phase("backward")
    sites = largest_sites([backward.site if backward else None])
    return Claim(claimed, sites, {"repeated": repeated}, method=GainMethod.ESTIMATE) if claimed else None


PLUGIN = Rule(
    "gradient-sync-in-accumulation",
    "All ranks synchronize gradients more than once per optimizer step",
    (
        "DistributedDataParallel synchronizes {repeated:number} times per step more than the optimizer needs.",
        "These synchronizations take {share:share} of each step.",
    ),
    "Let only the last backward pass before the optimizer's step synchronize: run the others within no_sync().",
    judge,
    code="with model.no_sync(): loss.backward()",
    threshold_source="_MOST_STEPS is a choice. All synchronizations of a step are taken to cost the same.",
)
