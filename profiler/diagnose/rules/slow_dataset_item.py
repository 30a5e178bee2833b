"""Recognizes a dataset that takes long for an item, in the training process or in workers that cannot keep up."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._input import NO_MORE_WORKERS, making_claim


def judge(costs: StepCosts) -> Claim | None:
    """The part of the loader's time in which the dataset makes items."""
    return making_claim(costs, ("dataset", "dataset map"), "items")


PLUGIN = Rule(
    "slow-dataset-item",
    "The dataset takes long for each item",
    (
        "Making a batch takes {made:time}, of which {items:share} in the dataset's own code.",
        "{share:share} of each step waits for that.",
        *NO_MORE_WORKERS,
    ),
    "Make items cheaper: prepare them once before the training, or replace loops over their elements by operators.",
    judge,
    threshold_source="Below half of the time of a batch, something else is slow.",
    is_alternative=True,
    knock_out=KnockOut.SETTINGS,
    settings={"replay": True},
)
