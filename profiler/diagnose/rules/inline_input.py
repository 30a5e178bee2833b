"""Batches that the training loop prepares itself, outside of any loader."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.input import diagnose_input
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._input import inline_cost, loader_sites


def judge(costs: StepCosts) -> Claim | None:
    """What other rules leave of the input that is made outside of loaders."""
    found = diagnose_input(costs.analysis)
    if found is None or not found.inline:
        return None
    part = found.inline_part
    return Claim({"input": inline_cost(costs, found)}, loader_sites(costs), {"part": part.name if part else None})


PLUGIN = Rule(
    "inline-input",
    "The training loop prepares its batches itself",
    ("{share:share} of each step goes to input that no loader makes, most of it to: {part}.",),
    "Prepare batches in a dataset, and let the workers of a DataLoader make them while the model trains.",
    judge,
    is_general=True,
    knock_out=KnockOut.STATEMENT,
)
