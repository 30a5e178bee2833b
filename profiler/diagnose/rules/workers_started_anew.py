"""Workers that are started again for each epoch."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.input import are_persistent, diagnose_input
from profiler.diagnose.model import InputAdvice
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._input import loader_cost, loader_values, made_sites


def judge(costs: StepCosts) -> Claim | None:
    """The starts, the waits for the first batches after them, and for the end of workers."""
    found = diagnose_input(costs.analysis)
    if found is None or found.advice is not InputAdvice.PERSISTENT_WORKERS:
        return None
    part = (found.starts + found.around_starts) / found.making if found.making else 1.0
    values = loader_values(costs)
    if are_persistent(found.use):  # the program makes the loader anew: its settings are right
        values["loader"] = None
    sites = [part.site for part in costs.inputs(where="main process", name="loader start") if part.site]
    return Claim(
        {"input": loader_cost(costs, found).part(min(1.0, part))},
        made_sites(costs, tuple(sites) or costs.sites("input")),
        {
            "starts": found.starts,
            "waits": found.around_starts,
            "every": 1 / found.use.starts if found.use.starts else None,
            **values,
        },
        is_least=True,  # after a start, the memory of the training process is shared with the workers
    )


PLUGIN = Rule(
    "workers-started-anew",
    "The loader's workers are started again and again",
    (
        "Starting workers takes {starts:share} of each step, waiting for their first batches and end {waits:share}.",
        "They are started once in {every:count} steps.",
    ),
    "Keep the workers from one epoch to the next: make the loader once, before the epochs, with persistent workers.",
    judge,
    code="{loader:assignment}DataLoader(..., persistent_workers=True)",
    knock_out=KnockOut.SETTINGS,
    settings={"loader": {"persistent_workers": True}},
)
