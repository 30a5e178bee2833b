"""Recognizes a loop that reads elements of a tensor on the device one by one."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._syncs import sync_claim


def judge(costs: StepCosts) -> Claim | None:
    """The idle time in and after the reads of lines that make many of them in a step."""
    return sync_claim(costs, "per-element-reads")


PLUGIN = Rule(
    "per-element-reads",
    "A loop reads elements from the device one by one",
    (
        "It waits for the device {calls:count} times per step, mostly at {site:place}.",
        "The device is idle {share:share} of the time in and after them.",
    ),
    "Compute on the device with whole tensors, and read the result once per step, or less often.",
    judge,
    threshold_source="`_syncs.MANY`, a choice, divides reads of elements from reads of a loss or a metric.",
    knock_out=KnockOut.LINE,
)
