"""Batches that come late although the workers have time: too few are made ahead."""

from __future__ import annotations

from typing import Final

from profiler.analyse.finding import KnockOut
from profiler.diagnose.input import diagnose_input
from profiler.diagnose.model import InputAdvice
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._input import loader_cost, loader_values, made_sites

_AHEAD: Final = 8
"""Batches of a worker ahead that a finding suggests at least: four times torch's default. A choice."""


def judge(costs: StepCosts) -> Claim | None:
    """The waits for workers that have time left."""
    found = diagnose_input(costs.analysis)
    if found is None or found.advice is not InputAdvice.LATE:
        return None
    waits = loader_cost(costs, found).part(found.waits / found.making if found.making else 1.0)
    values = loader_values(costs)
    ahead = max(_AHEAD, 2 * (values["prefetch"] or 0))
    values |= {"waits": costs.own_share(found.waits), "idle": 1.0 - found.busy, "ahead": ahead}
    # the worker that has most to do still needs this long, however many batches it makes ahead
    needed = max(found.busy, found.use.busiest_worker) * costs.active
    return Claim({"input": waits}, made_sites(costs), values, max(0.0, needed - (costs.active - waits.seconds)))


PLUGIN = Rule(
    "starved-prefetch",
    "Batches come late although the workers have time",
    (
        "The training thread waits {waits:share} of each step, while workers wait {idle:share} of theirs for work.",
        "Each worker makes {prefetch:count} batches ahead.",
    ),
    "Let workers make more batches ahead: some batches take much longer than others.",
    judge,
    threshold_source="Workers count as busy from 80% of their time on.",
    code="{loader:assignment}DataLoader(..., prefetch_factor={ahead:plain})",
    knock_out=KnockOut.SETTINGS,
    settings={"loader": {"prefetch_factor": "ahead"}},
)
