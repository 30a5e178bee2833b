"""Recognizes a function that collates items into batches and takes most of their time."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._input import NO_MORE_WORKERS, making_claim


def judge(costs: StepCosts) -> Claim | None:
    """The part of the loader's time in which items are collated."""
    return making_claim(costs, ("collate",), "collate")


PLUGIN = Rule(
    "slow-collate",
    "Collating items into batches takes long",
    (
        "Making a batch takes {made:time}, of which {collate:share} in the function that collates items.",
        "{share:share} of each step waits for that.",
        *NO_MORE_WORKERS,
    ),
    "Do before the training what does not depend on the other items of a batch, such as tokenizing them. Build each "
    "batch with one operator, such as torch.stack, instead of a loop over its items.",
    judge,
    threshold_source="Below half of the time of a batch, something else is slow.",
    is_alternative=True,
    knock_out=KnockOut.SETTINGS,
    settings={"replay": True},
)
