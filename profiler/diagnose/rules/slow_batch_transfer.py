"""Batches whose transfer from the workers takes the time: many tensors, or large ones."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.input import diagnose_input
from profiler.diagnose.model import InputAdvice
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._input import loader_cost, loader_values, made_sites


def judge(costs: StepCosts) -> Claim | None:
    """The time in which the training process receives batches."""
    found = diagnose_input(costs.analysis)
    if found is None or found.advice is not InputAdvice.LARGER_BATCHES:
        return None
    received = loader_cost(costs, found).part(found.receives / found.making if found.making else 1.0)
    values = {"receives": costs.own_share(found.receives), "batch": found.batch_seconds, **loader_values(costs)}
    return Claim({"input": received}, made_sites(costs, costs.sites("input")), values)


PLUGIN = Rule(
    "slow-batch-transfer",
    "Receiving batches from workers takes long",
    ("Receiving takes {receives:share} of each step.", "A batch has {batch_size:count} items."),
    "Send fewer and larger tensors in a batch, or smaller types: each tensor is received by itself.",
    judge,
    knock_out=KnockOut.SETTINGS,
    settings={"replay": True},
)
