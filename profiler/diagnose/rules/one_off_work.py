"""Tells of work in one or two steps that no later step does, such as the import of a library."""

from __future__ import annotations

from profiler.analyse.finding import Confidence
from profiler.diagnose.rule import MAX_SITES, Rule, RunClaim, StepCosts
from profiler.diagnose.rules._stages import run_seconds


def judge(costs: StepCosts) -> RunClaim | None:
    """The extra time of the steps that were set apart."""
    found = costs.analysis.one_offs
    if found is None:
        return None
    line = found.lines[0] if found.lines else None
    values = {
        "steps": found.count,
        "times": found.times,
        "part": line.share if line else None,
        "calls": f"{line.calls}()" if line and line.calls else None,
        "imports": line.imports or None if line else None,
    }
    whole = run_seconds(costs)
    sites = tuple(each.site for each in found.lines[:MAX_SITES])
    confidence = Confidence.HIGH if found.enough else Confidence.MEDIUM
    return RunClaim(found.seconds, min(1.0, found.seconds / whole) if whole else 0.0, sites, values, confidence)


PLUGIN = Rule(
    "one-off-work",
    "A cost that occurs once: {seconds:time} in {steps:steps}",
    (
        "It made {steps:steps} {times:number} times as long as the others, which are measured without it.",
        "{part:share} of the extra time is at this line.",
        "There it imports {imports}.",
        "There it calls {calls}.",
    ),
    "A longer run divides it among more steps. To measure steps alone, let the program do it before its first step.",
    judge,
    fixes=("A longer run divides it among more steps. To move it to the start, import {imports} at the top of the file.",),
    threshold_source="It must take as much time as 5% of all steps, and 0.1 s. It occurs in at most two steps.",
)
