"""Python code of the training loop of which no other rule knows what it is for."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.core.notice import Notice
from profiler.diagnose.rule import Claim, Rule, StepCosts, take
from profiler.diagnose.run import hides_waits


def judge(costs: StepCosts) -> Claim | Notice | None:
    """The Python that other rules leave."""
    if not costs.has_queue and hides_waits(costs.analysis):
        return Notice("python-or-device-wait")
    claimed = take(costs, "python")
    sites = costs.sites("python")  # without a line it is spread over libraries, and no loop can be replaced
    return Claim(claimed, sites, has_gain=bool(sites)) if claimed else None


PLUGIN = Rule(
    "python-loop",
    "Python code of the training loop takes time",
    ("{share:share} of each step is Python, much of it in {site:function}.",),
    "Replace loops over elements by operators on whole tensors, or do the work outside of the step.",
    judge,
    is_general=True,
    knock_out=KnockOut.STATEMENT,
)
