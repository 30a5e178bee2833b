"""A dataset that takes long for an item, in the training process or in workers that cannot keep up."""

from __future__ import annotations

from profiler.diagnose.input import MOSTLY, diagnose_input
from profiler.diagnose.model import InputAdvice
from profiler.diagnose.rule import Claim, Rule, StepCosts, largest_sites
from profiler.diagnose.rules._input import loader_cost, loader_sites, making

_PARTS = ("dataset", "dataset map")
_SLOW = (
    InputAdvice.USE_WORKERS,
    InputAdvice.CHEAP_BATCHES,
    InputAdvice.WORKERS_LIMIT,
    InputAdvice.MORE_WORKERS,
    InputAdvice.MORE_CORES,
)
"""Advice where the time of items is time of the step."""


def judge(costs: StepCosts) -> Claim | None:
    """The part of the loader's time in which the dataset makes items."""
    found = diagnose_input(costs.analysis)
    if found is None or found.advice not in _SLOW:
        return None
    parts = making(costs, "worker") or making(costs, "main process")
    items = [part for part in parts if part.name in _PARTS]
    whole = sum(part.seconds_per_step for part in parts)
    share = sum(part.seconds_per_step for part in items) / whole if whole else 0.0
    if share < MOSTLY:
        return None
    return Claim(
        {"input": loader_cost(costs, found).part(share)},
        largest_sites([*loader_sites(costs), *(part.site for part in items)]),
        {"made": found.made_seconds, "items": share},
    )


PLUGIN = Rule(
    "slow-dataset-item",
    "The dataset takes long for each item",
    (
        "Making a batch takes {made:time}, of which {items:share} in the dataset's own code.",
        "{share:share} of each step waits for that.",
    ),
    "Make items cheaper: prepare them once before the training, or replace loops over their elements by operators.",
    judge,
    threshold_source="Below half of the time of a batch, something else is slow.",
    is_alternative=True,
)
