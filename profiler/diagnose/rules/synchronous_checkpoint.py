"""Checkpoints that the training thread writes itself, often."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.analyse.model import Stage
from profiler.diagnose.rule import Claim, Rule, StepCosts, take, total_seconds
from profiler.diagnose.rules._periodic import checkpoint_costs, checkpoint_sites, with_stage_cost


def judge(costs: StepCosts) -> Claim | None:
    """The time in which checkpoints are written, and of other work for them: what regular steps take for it, or waits
    in the same function for a file to reach the disk, or to take the place of another one."""
    claimed, sites = take(costs, "checkpoint"), checkpoint_sites(costs)
    if not claimed:
        return None
    functions = {(site.file, site.function) for site in sites}
    waits = [line for line in costs.analysis.lines if line.categories.get("waiting")]
    own = sum(line.categories["waiting"] for line in waits if (line.site.file, line.site.function) in functions)
    if own:
        claimed["waiting"] = costs.cost("waiting").part(own / sum(line.categories["waiting"] for line in waits))
    claimed = max(claimed, checkpoint_costs(costs), key=total_seconds)
    return Claim(with_stage_cost(costs, Stage.CHECKPOINT, claimed), sites)


PLUGIN = Rule(
    "synchronous-checkpoint",
    "The training waits while checkpoints are written",
    ("{share:share} of each step goes to writing checkpoints.",),
    "Write checkpoints less often, or copy the state to the host and write it in a thread.",
    judge,
    knock_out=KnockOut.STATEMENT,
)
