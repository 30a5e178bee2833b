"""Gradients of parameters that no optimizer has, such as those of a backbone or a teacher that is not trained."""

from __future__ import annotations

from typing import Any, Final

from profiler.analyse.finding import Confidence, GainMethod
from profiler.diagnose.rule import Claim, Rule, RunClaim, StepCosts, exactly, largest_sites
from profiler.run.model import Site

_MANY: Final = 0.1
"""Share of the functions of a backward pass from which they are told where their time is not known. A choice."""
_ASSUMED: Final = 0.1
"""Part of the cost from which it counts as an estimate. A function that computes needed gradients, too, is taken to
need the same time for each gradient of a matrix. A choice."""


def judge(costs: StepCosts) -> Claim | RunClaim | None:
    """The share of the backward passes that was measured in a few of them. The forward pass becomes cheaper, too: it
    keeps no activations for them. Whether the program looks at these gradients itself is not known."""
    fact = costs.fact("unused_gradients")
    if not isinstance(fact, dict):
        return None
    sites = largest_sites([Site.from_fact(fact) if "file" in fact else None, *_optimizers(costs)])
    values: dict[str, Any] = {
        "tensors": fact["tensors"],
        "size": fact["bytes"],
        "module": fact["module"] or None,
        "part": fact["module"].rpartition(".")[2] or "module",
        "backward": fact["share"],
    }
    phase = costs.phase("backward")
    if costs.has_queue or costs.fact("device") != "cpu" or fact["share"] is None or phase is None:
        if fact["functions"] < _MANY:
            return None
        return RunClaim(sites=sites, values=values | {"backward": None}, confidence=Confidence.MEDIUM)
    seconds = fact["share"] * phase.seconds_per_step / costs.core_wait_factor
    if costs.is_known("compute"):  # of several ranks, the pass contains waits for others
        seconds = min(seconds, sum(costs.cost(name).seconds for name in _COMPUTING))
    is_estimate = fact["assumed"] > _ASSUMED * fact["share"]
    return Claim(
        _divided(costs, seconds),
        sites,
        values,
        method=GainMethod.ESTIMATE if is_estimate else GainMethod.BOUND,
        is_least=True,
        confidence=Confidence.MEDIUM,
    )


_COMPUTING: Final = ("compute", "framework")
"""Categories of the work of a backward pass."""


def _divided(costs: StepCosts, seconds: float) -> dict[str, Any]:
    """A time of the backward pass by category."""
    known = {name: cost for name in _COMPUTING if (cost := costs.cost(name).seconds)} or {"compute": 1.0}
    return {name: exactly(seconds * cost / sum(known.values())) for name, cost in known.items()}


def _optimizers(costs: StepCosts) -> list[Site]:
    """The lines that make optimizers, and so choose what is trained."""
    return [Site.from_fact(each) for each in costs.fact("optimizers") or () if "file" in each]


PLUGIN = Rule(
    "unused-gradients",
    "Gradients are computed for parameters that no optimizer updates",
    (
        "There are {tensors:count} such parameters, of {size:size}.",
        "Their gradients take {backward:share} of the backward pass.",
        "The largest module that has only such parameters is {module}.",
    ),
    "Call requires_grad_(False) on what is not trained, or run it under torch.no_grad().",
    judge,
    code="{part}.requires_grad_(False)",
    threshold_source="_MANY and _ASSUMED are choices.",
)
