"""Recognizes metrics and statistics, such as quantiles of gradients, that take much of each step."""

from __future__ import annotations

from typing import Final

from profiler.analyse.finding import Confidence, KnockOut
from profiler.diagnose.model import NAMED
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._frames import frame_costs, frame_sites
from profiler.diagnose.rules._metrics import metric_lines

_WORK: Final = ("compute", "framework", "python")


def judge(costs: StepCosts) -> Claim | None:
    """The time in functions of libraries for metrics, and at lines that compute numbers which the host reads."""
    lines, reads = metric_lines(costs)
    claimed = {name: cost for name, cost in frame_costs(lines).items() if name in _WORK}
    if not claimed:
        return None
    # whether the program decides by these numbers, as a search of a step size does, is not known
    return Claim(claimed, frame_sites(lines), {"reads": reads or None}, is_most=True, confidence=Confidence.MEDIUM)


PLUGIN = Rule(
    "metrics-in-loop",
    "Metrics or statistics take time in each step",
    (
        "{share:share} of each step computes metrics or other numbers that the training does not use.",
        "Numbers that the host reads there per step: {reads:number}.",
    ),
    "Compute metrics and statistics every 50th step or so, or once at the end of an epoch.",
    judge,
    threshold=NAMED,
    threshold_source="A tenth: some metrics are a usual part of a step.",
    knock_out=KnockOut.STATEMENT,
)
