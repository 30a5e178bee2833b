"""Batches so small that most of a step does not depend on the number of their items."""

from __future__ import annotations

from typing import Final

from profiler.core.notice import Notice
from profiler.diagnose.model import WORTH_NAMING
from profiler.diagnose.rule import ON_CORE, Claim, Cost, Rule, StepCosts, total_seconds
from profiler.diagnose.rules._input import loader_values, made_sites

_DOMINATES: Final = 0.6
"""Least share of a step that does not depend on the number of items, at the low end of its interval. A choice: twice as
many items then give 1.4 times as many per second."""
_TIMES: Final = 4
"""Times as many items of which the gain is predicted. A choice."""
_SYMPTOM: Final = 0.2
"""Share of a step in torch's own Python and calls from which a batch may be too small."""
_WORK: Final = tuple(name for name in ON_CORE if name not in ("input", "checkpoint"))


def judge(costs: StepCosts) -> Claim | Notice | None:
    """What steps with more items in each save for every item, by a line through the times of two sizes."""
    curve = costs.analysis.batches
    if curve is None or costs.is_device_unseen:
        return None
    if curve.fixed is None or curve.seconds is None or curve.low is None or curve.high is None:
        calling = costs.cost("framework").seconds + costs.cost("launch").seconds
        return Notice("one-batch-size", {"items": curve.size}) if calling >= _SYMPTOM * costs.active else None
    if curve.low < _DOMINATES * curve.seconds or curve.seconds < WORTH_NAMING * costs.seconds:
        return None
    work = {name: costs.cost(name) for name in _WORK if costs.cost(name).seconds}
    whole = total_seconds(work)
    if not whole:
        return None
    saved = (1 - 1 / _TIMES) / whole * min(1.0, whole / curve.seconds)
    fixed, low, high = (min(value, curve.seconds) for value in (curve.fixed, curve.low, curve.high))
    claimed = {
        name: Cost(cost.seconds * saved * fixed, cost.seconds * saved * low, cost.seconds * saved * high)
        for name, cost in work.items()
    }
    values = {
        **loader_values(costs),
        "items": curve.size,
        "other": curve.other,
        "step": curve.seconds,
        "other_step": curve.other_seconds,
        "fixed": fixed / curve.seconds,
        "larger": curve.size * _TIMES,
    }
    return Claim(claimed, made_sites(costs, ()), values, is_exclusive=False)


PLUGIN = Rule(
    "small-batch",
    "Most of a step does not depend on the size of the batch",
    (
        "Without its wait for the batch, a step with {items:count} items takes {step:time}.",
        "One with {other:count} items takes {other_step:time}.",
        "By a line through these two, {fixed:share} of a step would remain without any item.",
        "The gain is in items per second with batches of {larger:count}; what the model learns in a step changes too.",
    ),
    "Use larger batches, and adapt the learning rate; or make the steps themselves cheaper.",
    judge,
    threshold_source="`_DOMINATES` of the step, measured at two sizes of batches in this run.",
    code="{loader:assignment}DataLoader(..., batch_size={larger:plain})",
    is_general=True,
    is_alternative=True,
)
