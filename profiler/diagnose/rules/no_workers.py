"""A loader without workers: the training process makes each batch before it can compute."""

from __future__ import annotations

import math
from typing import Final

from profiler.analyse.finding import KnockOut
from profiler.diagnose.input import HANDOVER, MOSTLY, diagnose_input
from profiler.diagnose.model import WORTH_NAMING, InputAdvice, InputDiagnosis
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._input import MOST_WORKERS, SPLIT, loader_cost, made_sites, more_workers_values, off_core

_LEAST: Final = 1e-6


def judge(costs: StepCosts) -> Claim | None:
    """The loader's time, where workers could make the batches meanwhile."""
    found = diagnose_input(costs.analysis)
    if found is None or found.advice is not InputAdvice.USE_WORKERS:
        return None
    own = loader_cost(costs, found)
    rest = max(costs.active - own.seconds, _LEAST)
    workers = max(1, (found.cores or 2) - 1)
    if off_core(costs, own) >= MOSTLY * own.seconds:  # items that wait need no core
        workers = max(workers, min(MOST_WORKERS, math.ceil(round(own.seconds / rest, 3))))
    elif found.cores == 1:  # a worker would share the core with the training process
        return None
    # the workers make the batches meanwhile: a step takes no less than their share of the work
    beside = own.seconds / workers - rest
    return Claim(
        {"input": own},
        made_sites(costs),
        {
            **_batch_values(costs, found),
            "handover": HANDOVER,
            "workers": workers,
            "cores": found.cores,
            **more_workers_values(costs),
        },
        remaining=max(beside, HANDOVER * (found.use.batches or 1.0)),
    )


def _batch_values(costs: StepCosts, found: InputDiagnosis) -> dict[str, float | None]:
    """The time of making a batch under the name that tells what of it is no cost of the step."""
    waits = costs.share(costs.cost("core")) >= WORTH_NAMING
    name = "overlapped_batch" if costs.has_queue else "delayed_batch" if waits else "batch"
    return dict.fromkeys(("batch", "delayed_batch", "overlapped_batch")) | {name: found.batch_seconds}


PLUGIN = Rule(
    "no-workers",
    "The training process makes its batches itself",
    (
        "{share:share} of each step goes to making batches, {batch:time} each.",
        "{share:share} of each step goes to making batches: {delayed_batch:time} each, waits for a core included.",
        "{share:share} of each step the device is idle while batches are made, {overlapped_batch:time} each.",
        "Receiving a batch from a worker takes about {handover:time}.",
        "Cores that the program may use: {cores:count}.",
        SPLIT,
    ),
    "Let workers make the batches while the model trains.",
    judge,
    threshold_source="HANDOVER, what receiving a batch costs, was measured; `profiler.diagnose.input` tells where.",
    code="{loader:assignment}DataLoader(..., num_workers={workers:plain}, persistent_workers=True)",
    knock_out=KnockOut.SETTINGS,
    settings={"loader": {"num_workers": "workers", "persistent_workers": True}},
)
