"""Recognizes an operation whose result's shape depends on values on the device, so that the host waits to learn it."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._syncs import sync_claim


def judge(costs: StepCosts) -> Claim | None:
    """The idle time in and after masks as indices, `nonzero`, `masked_select`, `unique` and the like."""
    return sync_claim(costs, "shape-from-values")


PLUGIN = Rule(
    "shape-from-values",
    "The host waits to learn the shape of a result, which depends on values on the device",
    (
        "Waits per step: {calls:number}, mostly at {site:place}.",
        "The operation is {operation}.",
        "The device is idle {share:share} of the time in and after them.",
    ),
    "Keep the shape: torch.where(mask, x, 0), a product with the mask, or weights of the loss instead of a selection.",
    judge,
    knock_out=KnockOut.LINE,
)
