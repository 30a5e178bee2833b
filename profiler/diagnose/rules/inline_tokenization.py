"""Recognizes text that is tokenized for each batch: between steps, or in a loader for which the training waits."""

from __future__ import annotations

from dataclasses import replace

from profiler.analyse.finding import KnockOut
from profiler.diagnose.input import MOSTLY, diagnose_input
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._input import NO_MORE_WORKERS, inline_cost, input_sites, making_claim


def judge(costs: StepCosts) -> Claim | None:
    """The tokenizer's time outside of any loader, else its part of the loader's time."""
    found = diagnose_input(costs.analysis)
    if found is None or not found.inline:
        claim = making_claim(costs, ("tokenize",), "tokenizing")
        return replace(claim, values={"tokenized": None, **claim.values}) if claim else None
    parts = costs.inputs(where="main process", context="inline")
    tokenizing = [part for part in parts if part.name == "tokenize"]
    share = sum(part.seconds_per_step for part in tokenizing) / sum(part.seconds_per_step for part in parts)
    if share < MOSTLY:
        return None
    return Claim(
        {"input": inline_cost(costs, found).part(share)},
        input_sites(costs, tokenizing),
        {
            "tokenized": costs.analysis.value("tokenized_per_step"),
            "made": None,
            **dict.fromkeys(("handover", "free", "core_wait")),
        },
    )


PLUGIN = Rule(
    "inline-tokenization",
    "Training waits while text is tokenized",
    (
        "{share:share} of each step goes to the tokenizer.",
        "It encodes {tokenized:number} texts per step.",
        "Making a batch takes {made:time}, of which {tokenizing:share} in the tokenizer.",
        *NO_MORE_WORKERS,
    ),
    "Tokenize the corpus once before the training and read token ids, or tokenize in workers of a loader.",
    judge,
    is_alternative=True,
    knock_out=KnockOut.STATEMENT,
)
