"""Recognizes several reads of values from the device in each step, at different lines, where one would do."""

from __future__ import annotations

from typing import Final

from profiler.diagnose.rule import MAX_SITES, Claim, Rule, StepCosts
from profiler.diagnose.rules._syncs import idle_costs, waits_with_idle_time

_LEAST_LINES: Final = 2
_EACH_STEP: Final = 0.9
"""Reads per step of a line that reads in each step, but perhaps not in the last one that was recorded."""


def judge(costs: StepCosts) -> Claim | None:
    """The idle time in and after the reads of all lines but the one for which the device is idle longest: that one
    remains."""
    reads = [read for read in waits_with_idle_time(costs, "hidden-sync") if read.calls >= _EACH_STEP]
    if len(reads) < _LEAST_LINES:
        return None
    values = {"lines": len(reads), "calls": sum(read.calls for read in reads)}
    return Claim(idle_costs(reads[1:]), tuple(read.site for read in reads[:MAX_SITES]), values)


PLUGIN = Rule(
    "several-syncs",
    "The host waits for the device several times in each step, where once would do",
    ("{lines:count} lines read values from the device, {calls:number} times per step.",),
    "Collect the values in one tensor, as with torch.stack, and read that once at the end of the step.",
    judge,
    code="values = torch.stack([loss, norm]).tolist()",
    threshold_source="One read remains: that for which the device is idle longest.",
)
