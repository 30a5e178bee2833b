"""Calls that return the GPU's unused memory to the driver while the training runs."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._syncs import sync_claim


def judge(costs: StepCosts) -> Claim | None:
    """The idle time in and after the calls. What it costs to allocate the memory again is not in it."""
    return sync_claim(costs, "empty-cache")


PLUGIN = Rule(
    "empty-cache",
    "A call of empty_cache makes the host wait for the device",
    (
        "Calls per step: {calls:number}.",
        "The device is idle {share:share} of the time in and after them, and the memory is allocated anew afterwards.",
    ),
    "Remove it: torch reuses memory that it keeps, and returns it by itself before an allocation fails. Call it once "
    "between phases of different memory use, if another program needs the memory.",
    judge,
    knock_out=KnockOut.LINE,
)
