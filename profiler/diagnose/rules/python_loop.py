"""Python code of the training loop of which no other rule knows what it is for."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.core.notice import Notice
from profiler.diagnose.rule import NOTHING, Claim, Rule, StepCosts
from profiler.diagnose.rules._operators import called_from, small_operators
from profiler.diagnose.run import hides_waits


def judge(costs: StepCosts) -> Claim | Notice | None:
    """The Python that other rules leave, but that of lines which call small operators with it."""
    if not costs.has_queue and hides_waits(costs.analysis):
        return Notice("python-or-device-wait")
    python, calling = costs.cost("python"), small_operators(costs)
    called = called_from(calling, "python").get("python", NOTHING)
    if python.seconds <= called.seconds:
        return None
    sites = costs.sites("python")  # without a line it is spread over libraries, and no loop can be replaced
    others = tuple(site for site in sites if site not in calling)
    claimed = {"python": python.part(1.0 - called.seconds / python.seconds)}
    return Claim(claimed, others or sites, has_gain=bool(sites))


PLUGIN = Rule(
    "python-loop",
    "Python code of the training loop takes time",
    ("{share:share} of each step is Python, much of it in {site:function}.",),
    "Replace loops over elements by operators on whole tensors, or do the work outside of the step.",
    judge,
    is_general=True,
    knock_out=KnockOut.STATEMENT,
)
