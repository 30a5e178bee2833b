"""A function that collates items into batches and takes most of their time."""

from __future__ import annotations

from profiler.diagnose.input import MOSTLY, diagnose_input
from profiler.diagnose.rule import Claim, Rule, StepCosts, largest_sites
from profiler.diagnose.rules._input import loader_cost, making
from profiler.diagnose.rules.slow_dataset_item import _SLOW


def judge(costs: StepCosts) -> Claim | None:
    """The part of the loader's time in which items are collated."""
    found = diagnose_input(costs.analysis)
    if found is None or found.advice not in _SLOW:
        return None
    parts = making(costs, "worker") or making(costs, "main process")
    whole = sum(part.seconds_per_step for part in parts)
    collate = [part for part in parts if part.name == "collate"]
    share = sum(part.seconds_per_step for part in collate) / whole if whole else 0.0
    if share < MOSTLY:
        return None
    return Claim(
        {"input": loader_cost(costs, found).part(share)},
        largest_sites([*costs.sites("input"), *(part.site for part in collate)]),
        {"made": found.made_seconds, "collate": share},
    )


PLUGIN = Rule(
    "slow-collate",
    "Collating items into batches takes long",
    (
        "Making a batch takes {made:time}, of which {collate:share} in the function that collates items.",
        "{share:share} of each step waits for that.",
    ),
    "Build each batch with one operator, such as torch.stack, instead of a loop over its items.",
    judge,
    threshold_source="Below half of the time of a batch, something else is slow.",
    is_alternative=True,
)
