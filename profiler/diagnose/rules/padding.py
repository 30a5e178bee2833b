"""Batches of token ids that are mostly padding, which the model computes as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from profiler.analyse.finding import Confidence
from profiler.diagnose.rule import Claim, Rule, RunClaim, StepCosts, exactly
from profiler.diagnose.rules._input import loader_values, made_sites, main_loader

_MIN_BATCHES: Final = 3
"""Batches with padding from which its share is told. A choice."""
_MUCH: Final = 0.2
"""Share of padding that is taken to remain in batches of texts of similar length. A choice."""
_CONFIDENCE: Final = Confidence.MEDIUM
"""Padding is recognized by the values of a few batches, which other integers may have as well."""
_COMPUTING: Final = ("forward", "backward")


def judge(costs: StepCosts) -> Claim | RunClaim | None:
    """The time of computing with padding, as far as computing is in proportion to the length of the rows."""
    loader, facts = main_loader(costs), costs.fact("padding")
    seen = facts.get(loader.name) if loader and isinstance(facts, Mapping) else None
    if seen is None or costs.fact("packed_sequences"):
        return None
    if seen["padded_batches"] < max(_MIN_BATCHES, seen["batches"]) or len(seen["ids"]) != 1:
        return None  # some batches were no token ids, or had none that is certainly padding
    share = seen["padding"] / seen["elements"]
    if share <= _MUCH:
        return None
    values = {**loader_values(costs), "padding": share, "batches": seen["padded_batches"], "id": seen["ids"][0]}
    sites = made_sites(costs, ())
    computing = sum(phase.seconds_per_step for phase in costs.analysis.phases if phase.name in _COMPUTING)
    if costs.has_queue or not computing:  # what a device computes is in no category of the host
        return RunClaim(sites=sites, values=values, confidence=_CONFIDENCE)
    saved = 1.0 - (1.0 - share) / (1.0 - _MUCH)
    compute = costs.cost("compute")
    whole = min(1.0, computing / compute.seconds) if compute.seconds else 0.0
    cost = compute.part(whole * saved)
    costs_of_padding = {"compute": cost if cost.seconds else exactly(0.0)}
    return Claim(costs_of_padding, sites, values, confidence=_CONFIDENCE)


PLUGIN = Rule(
    "padding",
    "Much of each batch is padding",
    (
        "Of the elements of {batches:count} batches, {padding:share} are the id {id:plain} at the end of rows.",
        "The model computes with them as with all others, unless it leaves them out by itself.",
    ),
    "Put texts of similar length into one batch, pad each batch only to its longest text, or pack several texts into "
    "one row.",
    judge,
    threshold_source="The gain is that of batches with 20% of padding, `_MUCH`, and of time in proportion to length.",
)
