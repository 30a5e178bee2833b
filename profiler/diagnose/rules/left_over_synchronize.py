"""Recognizes a call that only waits for the device, left over from a measurement."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._syncs import sync_claim


def judge(costs: StepCosts) -> Claim | None:
    """The idle time in and after calls of synchronize."""
    return sync_claim(costs, "left-over-synchronize")


PLUGIN = Rule(
    "left-over-synchronize",
    "A call of synchronize makes the host wait for the device",
    ("Calls per step: {calls:number}.", "The device is idle {share:share} of the time in and after it."),
    "Remove it: results are right without it, and a measurement can use torch.cuda.Event.",
    judge,
    knock_out=KnockOut.LINE,
)
