"""Recognizes evaluation that takes much of the training's time."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.analyse.model import Stage
from profiler.diagnose.model import NAMED
from profiler.diagnose.rule import Claim, Rule, StepCosts, phase_costs
from profiler.diagnose.rules._periodic import with_stage_cost


def judge(costs: StepCosts) -> Claim | None:
    """The time in evaluation mode, divided among the categories as the samples in it are."""
    phase = costs.phase(Stage.EVALUATION)
    if phase is None or costs.has_queue:
        return None
    claimed, sites = phase_costs(costs, phase)
    return Claim(with_stage_cost(costs, Stage.EVALUATION, claimed), sites, is_most=True)


PLUGIN = Rule(
    "frequent-evaluation",
    "Evaluation takes much of the training's time",
    ("It takes {seconds:time} per step on average.",),
    "Evaluate less often, or on less data.",
    judge,
    threshold_source="A tenth: an evaluation that takes less is a usual part of a training.",
    threshold=NAMED,
    knock_out=KnockOut.STATEMENT,
)
