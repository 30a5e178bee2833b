"""Recognizes a loader without workers: the training process makes each batch before it can compute."""

from __future__ import annotations

from profiler.analyse.finding import GainMethod, KnockOut
from profiler.diagnose.input import HANDOVER, diagnose_input
from profiler.diagnose.model import WORTH_NAMING, InputAdvice, InputDiagnosis
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._input import SPLIT, made_cost, made_sites, more_workers_values, suggested_workers


def judge(costs: StepCosts) -> Claim | None:
    """The loader's time without that of its sampler, where workers could make the batches meanwhile."""
    found = diagnose_input(costs.analysis)
    if found is None or found.advice is not InputAdvice.USE_WORKERS:
        return None
    suggested = suggested_workers(costs, found)
    if suggested is None:
        return None
    own = made_cost(costs, found)
    return Claim(
        {"input": own},
        made_sites(costs),
        {
            **_batch_values(costs, found),
            "handover": HANDOVER,
            "workers": suggested.workers,
            "cores": found.cores,
            "free": found.use.free_cores,
            **more_workers_values(costs),
        },
        remaining=max(0.0, suggested.step_seconds - costs.active + own.seconds),
        method=GainMethod.ESTIMATE,  # what it costs to send and to receive a batch was measured elsewhere
    )


def _batch_values(costs: StepCosts, found: InputDiagnosis) -> dict[str, float | None]:
    """The time of making a batch under the name that tells what of it is no cost of the step."""
    waits = costs.cost("core").seconds >= WORTH_NAMING * costs.seconds
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
        "On average, {free:cores} free.",
        SPLIT,
    ),
    "Let workers make the batches while the model trains.",
    judge,
    threshold_source=(
        "HANDOVER and SENDING, what it costs to receive and to send a batch, were measured; `profiler.diagnose.input` "
        "and `_workers` tell where. Less than 5% is worth no worker."
    ),
    code="{loader:assignment}DataLoader(..., num_workers={workers:plain}, persistent_workers=True)",
    knock_out=KnockOut.SETTINGS,
    settings={"loader": {"num_workers": "workers", "persistent_workers": True}},
)
