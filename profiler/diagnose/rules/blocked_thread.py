"""Waits of the training thread of which no other rule knows the reason: sleeps, locks, files, other processes."""

from __future__ import annotations

from typing import Final

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import Claim, Cost, Rule, StepCosts, largest_sites, take
from profiler.diagnose.rules._frames import frame_costs, mostly_waits

_WORK: Final = ("compute", "python")
"""Categories of what a line does outside of torch."""


def judge(costs: StepCosts) -> Claim | None:
    """The waits that other rules leave, at most the time in which its clocks show it blocked: samples tell
    waits from computing only roughly."""
    claimed = take(costs, "waiting")
    if not claimed:
        return None
    blocked, waiting = costs.analysis.blocked, claimed["waiting"]
    claimed |= _work_of_waits(costs)
    if blocked is not None:
        part = min(1.0, blocked / waiting.seconds)
        claimed = {name: cost.part(part) for name, cost in claimed.items()}
    sites = costs.sites("waiting")
    sites, backward = largest_sites((*sites, *costs.line_sites("waiting", sites))), costs.phase("backward")
    # in a backward pass torch itself waits, for memory or for its threads: no change of the program removes that
    is_of_torch = bool(sites) and backward is not None and sites[0] == backward.site
    # while the thread waits, its core sleeps or runs other work, and what follows finds its caches cold: in
    # tests/clinic/cases/trap_trainer, a pause of 4 ms lets the other 2.5 ms of the step take 3.3 ms
    return Claim(claimed, sites, has_gain=not is_of_torch, is_least=True)


def _work_of_waits(costs: StepCosts) -> dict[str, Cost]:
    """What lines that mostly wait compute besides, outside of torch: a call that starts a program or asks a server
    does both."""
    if costs.has_queue:
        return {}
    lines = [line for line in costs.analysis.lines if line.is_outside_torch and mostly_waits(line)]
    work = frame_costs(tuple(lines))
    return {name: work[name] for name in _WORK if name in work and work[name].seconds > 0}


PLUGIN = Rule(
    "blocked-thread",
    "The training thread is blocked",
    ("{share:share} of each step is spent waiting, much of it in {site:function}.",),
    "Wait less often, or do what it waits for in another thread or process and collect the result in a later step.",
    judge,
    is_general=True,
    knock_out=KnockOut.STATEMENT,
)
