"""Recognizes a loader that is started again for each batch, as `next(iter(loader))` does."""

from __future__ import annotations

from typing import Final

from profiler.diagnose.input import diagnose_input, is_started_for_batches
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._input import loader_cost, making

_STARTING: Final = ("loader start", "the loader itself")
"""Parts of the input in which a loader starts: it draws the order of all items when its first batch is asked for."""


def judge(costs: StepCosts) -> Claim | None:
    """What the loader itself takes, beside its items and their collation. Workers that start are another rule's."""
    found = diagnose_input(costs.analysis)
    if found is None or found.use.workers or not is_started_for_batches(found.use):
        return None
    parts = making(costs, "main process")
    whole = sum(part.seconds_per_step for part in parts)
    own = sum(part.seconds_per_step for part in parts if part.name in _STARTING)
    if not own:
        return None
    cost = {"input": loader_cost(costs, found).part(own / whole)}
    return Claim(cost, costs.sites("input"), {"starts": found.use.starts})


PLUGIN = Rule(
    "loader-started-anew",
    "The loader is started again for each batch",
    (
        "{share:share} of each step goes to starting it and to drawing the order of all of its items.",
        "Starts of the loader in each step: {starts:number}.",
    ),
    "Call iter(loader) before the loop, next() on that iterator in each step, and iter() again only when it ends.",
    judge,
    threshold_source="A loader whose epochs have two batches or more is not started for each batch.",
)
