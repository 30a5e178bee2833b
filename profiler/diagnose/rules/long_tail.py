"""Recognizes work after the last step that takes much of the run."""

from __future__ import annotations

from profiler.analyse.model import Period, Stage
from profiler.diagnose.rule import Rule, RunClaim, StepCosts
from profiler.diagnose.rules._stages import LONG_S, MUCH, period_sites, stage_seconds


def judge(costs: StepCosts) -> RunClaim | None:
    """The time from the last step to the end of the program."""
    seconds, share = stage_seconds(costs, Stage.END)
    if seconds < LONG_S or share < MUCH:
        return None
    return RunClaim(seconds, share, period_sites(costs, Period.TEARDOWN))


PLUGIN = Rule(
    "long-tail",
    "Much of the run passes after its last step",
    (
        "The program ends {seconds:time} after its last step, {share:share} of the run.",
        "A final test of the model usually comes after the last step.",
    ),
    "Do work that does not need the device in a program of its own.",
    judge,
    threshold=MUCH,
    threshold_source="A choice: 30 s and a fifth of the run.",
)
