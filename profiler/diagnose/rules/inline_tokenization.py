"""Text that the training loop tokenizes between steps."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.input import MOSTLY, diagnose_input
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._input import inline_cost, input_sites


def judge(costs: StepCosts) -> Claim | None:
    """The tokenizer's time outside of any loader."""
    found = diagnose_input(costs.analysis)
    if found is None or not found.inline:
        return None
    parts = costs.inputs(where="main process", context="inline")
    tokenizing = [part for part in parts if part.name == "tokenize"]
    share = sum(part.seconds_per_step for part in tokenizing) / sum(part.seconds_per_step for part in parts)
    if share < MOSTLY:
        return None
    return Claim(
        {"input": inline_cost(costs, found).part(share)},
        input_sites(costs, tokenizing),
        {"tokenized": costs.analysis.value("tokenized_per_step")},
    )


PLUGIN = Rule(
    "inline-tokenization",
    "The training loop tokenizes its text between steps",
    ("{share:share} of each step goes to the tokenizer.", "It encodes {tokenized:number} texts per step."),
    "Tokenize the corpus once before the training and read token ids, or tokenize in workers of a loader.",
    judge,
    knock_out=KnockOut.STATEMENT,
)
