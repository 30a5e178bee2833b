"""Workers for batches that take less time to make than to receive."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.input import diagnose_input
from profiler.diagnose.model import InputAdvice
from profiler.diagnose.rule import Claim, Rule, StepCosts, take
from profiler.diagnose.rules._input import loader_values, made_cost, made_sites


def judge(costs: StepCosts) -> Claim | None:
    """The loader's time but for drawing indices and making the batches, and waits for cores that the workers take."""
    found = diagnose_input(costs.analysis)
    if found is None or found.advice is not InputAdvice.NO_WORKERS:
        return None
    crowded = found.cores is not None and found.use.workers >= found.cores
    own = made_cost(costs, found)
    made = found.made_seconds * (found.use.batches or 1.0)
    if own.seconds <= made:  # the rest was waiting for a core
        return None
    return Claim(
        {"input": own.part(1.0 - made / own.seconds), **(take(costs, "core") if crowded else {})},
        made_sites(costs, costs.sites("input")),
        {
            "made": found.made_seconds,
            "batch": found.batch_seconds,
            "workers": found.use.workers,
            **loader_values(costs),
        },
        is_least=True,
    )


PLUGIN = Rule(
    "needless-workers",
    "Workers make batches that the training process could make in less time",
    (
        "Making a batch takes {made:time}, getting it from a worker {batch:time}.",
        "A batch has {batch_size:count} items.",
    ),
    "Make the batches in the training process, or use larger batches.",
    judge,
    threshold_source="Both times are measured in this run.",
    code="{loader:assignment}DataLoader(..., num_workers=0)",
    knock_out=KnockOut.SETTINGS,
    settings={"loader": {"num_workers": 0}},
)
