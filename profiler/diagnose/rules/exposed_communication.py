"""Recognizes communication between devices that no computing hides."""

from __future__ import annotations

from profiler.analyse.model import COMMUNICATING
from profiler.diagnose.model import NAMED
from profiler.diagnose.rule import Claim, Rule, StepCosts, take


def judge(costs: StepCosts) -> Claim | None:
    """The time in which a device only communicates."""
    parts = [part for part in costs.analysis.device_parts if part.kind == "communication"]
    claimed = take(costs, COMMUNICATING)
    whole = sum(part.share for part in parts)
    return Claim(claimed, (), {"whole": whole}) if claimed else None


PLUGIN = Rule(
    "exposed-communication",
    "Devices communicate while no kernel computes",
    ("They only communicate {share:share} of the time, of {whole:share} in which they communicate at all.",),
    "Overlap it with the backward pass: larger or smaller buckets, fewer synchronized steps, a faster link.",
    judge,
    threshold=NAMED,
    threshold_source="A tenth: the last bucket of gradients can seldom be hidden.",
)
