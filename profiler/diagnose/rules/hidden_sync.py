"""Recognizes a few reads of tensors per step, for each of which the host waits until the device is done."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._syncs import sync_claim


def judge(costs: StepCosts) -> Claim | None:
    """The idle time in and after the reads of lines that make few of them in a step."""
    return sync_claim(costs, "hidden-sync")


PLUGIN = Rule(
    "hidden-sync",
    "The host waits for the device in the middle of each step",
    (
        "Waits per step: {calls:number}, mostly at {site:place}.",
        "The line reads a tensor: {operation}.",
        "The device is idle {share:share} of the time in and after them.",
    ),
    "Keep the value on the device as a tensor, and read it every 50th step or so, after the next step was launched.",
    judge,
    threshold_source="`_syncs.MANY`, a choice, divides reads of a loss or a metric from reads of elements.",
    knock_out=KnockOut.LINE,
)
