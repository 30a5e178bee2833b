"""Workers that are started again for each epoch."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.input import are_persistent, diagnose_input
from profiler.diagnose.model import InputAdvice
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._input import loader_cost, loader_values, made_sites, main_loader


def judge(costs: StepCosts) -> Claim | None:
    """The starts, the waits for the first batches after them, and for the end of workers."""
    found = diagnose_input(costs.analysis)
    if found is None or found.advice is not InputAdvice.PERSISTENT_WORKERS:
        return None
    part = (found.starts + found.around_starts) / found.making if found.making else 1.0
    loader = main_loader(costs) or next(iter(found.use.loaders), None)
    if are_persistent(found.use):  # those that are not made anew keep their workers
        loader = next((each for each in found.use.loaders if each.made_anew), loader)
    is_anew = loader is not None and (loader.made_anew or are_persistent(found.use))
    sites = [part.site for part in costs.inputs(where="main process", name="loader start") if part.site]
    return Claim(
        {"input": loader_cost(costs, found).part(min(1.0, part))},
        made_sites(costs, tuple(sites) or costs.sites("input")),
        {
            "starts": costs.own_share(found.starts),
            "waits": costs.own_share(found.around_starts),
            "every": 1 / found.use.starts if found.use.starts else None,
            "made_anew": loader.site if loader and is_anew else None,
            "keep": None if is_anew else True,  # the setting alone changes nothing then, also in a trial
            **loader_values(costs),
        },
        is_least=True,  # after a start, the memory of the training process is shared with the workers
    )


PLUGIN = Rule(
    "workers-started-anew",
    "The loader's workers are started again and again",
    (
        "Starting workers takes {starts:share} of each step, waiting for their first batches and end {waits:share}.",
        "They are started once in {every:count} steps.",
        "A new loader is made for each start, at {made_anew:place}: persistent_workers=True alone keeps no workers.",
    ),
    "Keep the workers from one epoch to the next: make the loader once, before the epochs, with "
    "persistent_workers=True.",
    judge,
    code="{loader:assignment}DataLoader(..., persistent_workers=True)  # once, before the epochs",
    knock_out=KnockOut.SETTINGS,
    settings={"loader": {"persistent_workers": "keep"}},
)
