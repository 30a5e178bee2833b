"""Gradients that no optimizer uses: of parameters that it doesn't have, such as those of a teacher, and those that
`zero_grad` discards, such as those of a generator for the loss of its discriminator."""

from __future__ import annotations

from typing import Final

from profiler.analyse.finding import Confidence, GainMethod
from profiler.core.notice import Notice
from profiler.diagnose.rule import Claim, Rule, StepCosts, largest_sites, phase_costs
from profiler.run.model import Site

_ASSUMED: Final = 0.1
"""Part of the cost from which it counts as an estimate. A function that computes needed gradients, too, is taken to
need the same time for each gradient of a matrix. A choice."""


def judge(costs: StepCosts) -> Claim | Notice | None:
    """The share of the backward passes that was measured in a few of them. The forward pass becomes cheaper, too: it
    keeps no activations for them. Whether the program looks at these gradients itself is not known."""
    fact, phase = costs.fact("unused_gradients"), costs.phase("backward")
    if not isinstance(fact, dict) or phase is None or costs.has_queue or costs.fact("device") != "cpu":
        return None
    if "not_judged" in fact:
        return Notice(**fact["not_judged"])
    claimed, _ = phase_costs(costs, phase)
    discarded = fact.get("discarded") or None
    is_alone = costs.analysis.ranks is None  # of several ranks, the end of the pass contains waits for others
    return Claim(
        {name: cost.part(fact["share"] / costs.core_wait_factor) for name, cost in claimed.items()},
        largest_sites([Site.from_fact(fact) if "file" in fact else None, *(() if discarded else _optimizers(costs))]),
        {
            "tensors": fact["tensors"],
            "discarded": discarded,
            "size": fact["bytes"],
            "largest": " × ".join(map(str, fact["largest"])) or "1",
            "backward": fact["share"],
        },
        method=GainMethod.ESTIMATE if fact["assumed"] > _ASSUMED * fact["share"] else GainMethod.BOUND,
        is_least=is_alone,
        is_most=not is_alone,
        confidence=Confidence.MEDIUM,
    )


def _optimizers(costs: StepCosts) -> list[Site]:
    """The lines that make optimizers, and so choose what is trained."""
    return [Site.from_fact(each) for each in costs.fact("optimizers") or () if "file" in each]


PLUGIN = Rule(
    "unused-gradients",
    "Gradients are computed that no optimizer uses",
    (
        "They take {backward:share} of the backward passes.",
        "Of {discarded:count} parameters, zero_grad() resets the gradients before their optimizer steps.",
        "Number of their parameters: {tensors:count}, with {size:size} together.",
        "The shape of the largest one is {largest}.",
    ),
    "Call requires_grad_(False) on the modules that are not trained, or run them under torch.no_grad().",
    judge,
    fixes=("Call detach() on what the modules with these {discarded:count} parameters give to the loss.",),
    threshold_source="_ASSUMED is a choice.",
)
