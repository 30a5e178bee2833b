"""Recognizes a start that takes much of the run before its first step."""

from __future__ import annotations

from profiler.analyse.model import Period, Stage
from profiler.diagnose.rule import Rule, RunClaim, StepCosts
from profiler.diagnose.rules._stages import LONG_OWN_S, LONG_S, MUCH, period_sites, stage_seconds


def judge(costs: StepCosts) -> RunClaim | None:
    """The time of imports and of all else before the first step."""
    seconds, share = stage_seconds(costs, Stage.IMPORT, Stage.START)
    imports, _ = stage_seconds(costs, Stage.IMPORT)
    if (seconds < LONG_S and seconds - imports < LONG_OWN_S) or share < MUCH:
        return None
    return RunClaim(seconds, share, period_sites(costs, Period.STARTUP), {"imports": imports})


PLUGIN = Rule(
    "long-startup",
    "Much of the run passes before its first step",
    ("The first step begins after {seconds:time}, {share:share} of the run.", "Imports take {imports:time} of it."),
    "Prepare data and downloads once and store the result; import only what the program uses.",
    judge,
    threshold=MUCH,
    threshold_source="A choice: 30 s, or 10 s without imports, and a fifth of the run.",
)
