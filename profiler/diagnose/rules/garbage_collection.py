"""Recognizes Python's garbage collector, which runs often or over many objects."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts, exactly


def judge(costs: StepCosts) -> Claim | None:
    """The recorded time of collections, which is time of Python."""
    seconds = costs.collecting
    if costs.is_known("python") or costs.has_queue:  # of a device, only collections that leave it idle count
        seconds = min(seconds, costs.cost("python").high)
    if not seconds:
        return None
    # a collection reads all objects, after which what the program uses is in the caches no more
    return Claim({"python": exactly(seconds)}, costs.sites("python"), is_least=True)


PLUGIN = Rule(
    "garbage-collection",
    "Python's garbage collector stops the training",
    ("{seconds:time} of each step goes to collections.",),
    "Do not call gc.collect() while the model trains. Call gc.freeze() once the model is built: its objects are then "
    "not searched.",
    judge,
    threshold_source="Collections of 50 µs and more are recorded.",
    knock_out=KnockOut.SETTINGS,
    settings={"collect": False},
)
