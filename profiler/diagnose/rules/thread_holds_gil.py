"""Another Python thread that holds the GIL while the training thread needs it."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts, largest_sites, take
from profiler.diagnose.run import gil_holder


def judge(costs: StepCosts) -> Claim | None:
    """The waits for the GIL."""
    claimed = take(costs, "gil")
    if not claimed:
        return None
    holder = gil_holder(costs.analysis)
    values = holder.values if holder else {}
    sites = largest_sites([values.get("site")]) or costs.sites("gil")
    return Claim(claimed, sites, {"held": values.get("share"), "holder": values.get("site")})


PLUGIN = Rule(
    "thread-holds-gil",
    "Another Python thread holds the GIL while the training thread waits for it",
    ("{share:share} of each step waits for the GIL.", "That thread holds it {held:share} of the time."),
    "Move the work of that thread to a process of its own, or into code that releases the GIL.",
    judge,
    knock_out=KnockOut.THREAD,
)
