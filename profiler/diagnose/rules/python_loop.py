"""Python code of the training loop itself, of which no other rule knows what it is for."""

from __future__ import annotations

from profiler.core.notice import Notice
from profiler.diagnose.rule import Claim, Rule, StepCosts, take
from profiler.diagnose.run import hides_waits


def judge(costs: StepCosts) -> Claim | Notice | None:
    """The Python that other rules leave."""
    if not costs.has_queue and hides_waits(costs.analysis):
        return Notice("python-or-device-wait")
    claimed = take(costs, "python")
    return Claim(claimed, costs.sites("python")) if claimed else None


PLUGIN = Rule(
    name="python-loop",
    title="Python code of the training loop takes time",
    evidence=("{share:share} of each step is Python, most of it in {site:function}.",),
    fix="Replace loops over elements by operators on whole tensors, or move the work out of the step.",
    judge=judge,
    threshold_source="Without 5% of a step the program would be 6% faster at most.",
    is_general=True,
)
