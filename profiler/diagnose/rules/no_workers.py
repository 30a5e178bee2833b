"""A loader without workers: the training process makes each batch before it can compute."""

from __future__ import annotations

from profiler.diagnose.input import HANDOVER, SUBSTANTIAL, diagnose_input
from profiler.diagnose.model import InputAdvice
from profiler.diagnose.rule import Claim, Rule, StepCosts, largest_sites, take


def judge(costs: StepCosts) -> Claim | None:
    """The loader's time, where workers could make the batches meanwhile."""
    found = diagnose_input(costs.analysis)
    if found is None or found.advice is not InputAdvice.USE_WORKERS:
        return None
    own = costs.cost("input").part(found.making / max(found.making + found.inline, 1e-9))
    cores = int(found.cores or 1)
    workers = max(1, cores - 1)
    batches = found.use.batches or 1.0
    # the workers make the batches meanwhile: a step cannot take less than their share of the work
    beside = max(0.0, own.seconds / workers - (costs.seconds - own.seconds))
    return Claim(
        {"input": own} if own.seconds else take(costs, "input"),
        largest_sites([found.part.site if found.part else None]),
        {"batch": found.batch_seconds, "handover": HANDOVER, "workers": workers, "cores": found.cores},
        remaining=max(beside, HANDOVER * batches),
    )


PLUGIN = Rule(
    name="no-workers",
    title="The training process makes its batches itself",
    evidence=(
        "{share:share} of each step goes to making batches, {batch:time} each.",
        "Receiving a batch from a worker takes about {handover:time}.",
        "The program may use {cores:count} cores.",
    ),
    fix="Let workers make the batches while the model trains.",
    code="DataLoader(..., num_workers={workers:count}, persistent_workers=True)",
    judge=judge,
    threshold=SUBSTANTIAL,
    threshold_source="Without 5% of a step the program would be 6% faster at most; HANDOVER was measured.",
)
