"""Workers that cannot keep up although more of them would: they wait for something, or cores are free."""

from __future__ import annotations

import math

from profiler.analyse.finding import KnockOut
from profiler.diagnose.input import diagnose_input, granted_share
from profiler.diagnose.model import InputAdvice
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._input import MOST_WORKERS, SPLIT, loader_cost, made_sites, making, more_workers_values
from profiler.diagnose.rules._workers import WORTH, least_step_time


def judge(costs: StepCosts) -> Claim | None:
    """The waits for workers, less what remains with as many workers as help."""
    found = diagnose_input(costs.analysis)
    if found is None or found.advice not in (InputAdvice.MORE_WORKERS, InputAdvice.WORKERS_LIMIT):
        return None
    cores, workers = found.cores or 0, found.use.workers
    own = loader_cost(costs, found)
    waits = own.part(found.waits / found.making if found.making else 1.0)
    work = sum(part.seconds_per_step for part in making(costs, "worker"))
    computing = max(costs.active - waits.seconds, 1e-9)
    needed = max(workers + 1, min(MOST_WORKERS, math.ceil(work / computing)))
    if found.advice is InputAdvice.WORKERS_LIMIT:
        needed = min(needed, cores - 1)
        if needed <= workers:
            return None
    is_waiting = found.advice is InputAdvice.MORE_WORKERS
    granted = granted_share(found.use.worker_cpu, found.use.worker_core_wait) if is_waiting else 0.0
    after = max(computing, work / needed, least_step_time(costs, found, granted=granted))
    if after * WORTH > costs.active:
        return None
    return Claim(
        {"input": waits},
        made_sites(costs),
        {
            "waits": costs.own_share(found.waits),
            "busy": found.busy,
            "cpu": found.use.worker_cpu,
            "workers": workers,
            "needed": needed,
            "cores": found.cores,
            **more_workers_values(costs),
        },
        remaining=after - computing,
    )


PLUGIN = Rule(
    "too-few-workers",
    "The loader has too few workers",
    (
        "The training thread waits for workers {waits:share} of each step.",
        "The workers are busy {busy:share} of the time, and run on a core {cpu:share} of it.",
        "It has {workers:count}, and the program may use this number of cores: {cores:count}.",
        SPLIT,
    ),
    "Use more workers.",
    judge,
    threshold_source="Workers that run on a core help only while cores are free. Less than 5% is worth no worker.",
    code="{loader:assignment}DataLoader(..., num_workers={needed:plain})",
    knock_out=KnockOut.SETTINGS,
    settings={"loader": {"num_workers": "needed"}},
)
