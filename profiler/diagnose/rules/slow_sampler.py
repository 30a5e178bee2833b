"""Recognizes a sampler that takes long to draw the indices of a batch, which it does in the training process."""

from __future__ import annotations

from profiler.diagnose.input import diagnose_input, is_started_for_batches, sampling_functions
from profiler.diagnose.rule import Claim, Cost, Rule, StepCosts, largest_sites
from profiler.diagnose.rules._input import loader_cost


def judge(costs: StepCosts) -> Claim | None:
    """The part of the loader's time in which it asks its sampler. Where a loader is started for each batch, another
    rule tells why all of its indices are drawn."""
    found = diagnose_input(costs.analysis)
    if found is None or not found.sampling or is_started_for_batches(found.use):
        return None
    functions = sampling_functions(costs.analysis)
    cost = loader_cost(costs, found).part(found.sampling / found.making)
    share, low, high = (sum(getattr(each.below, end) for each in functions) for end in ("share", "low", "high"))
    sampled = Cost(cost.seconds, cost.low * low / share, cost.high * high / share)
    return Claim(
        {"input": sampled},
        largest_sites(site for each in functions for site in each.lines or (each.below.site,)),
        {"batch": cost.seconds / (found.use.batches or 1.0)},
    )


PLUGIN = Rule(
    "slow-sampler",
    "The loader's sampler takes long to draw indices",
    (
        "Drawing the indices of a batch takes {batch:time}, {share:share} of each step.",
        "The training process does this itself, however many workers there are.",
    ),
    "Draw the indices of all batches at the start of an epoch, by operations on whole arrays, instead of looking "
    "through the dataset for each batch.",
    judge,
)
