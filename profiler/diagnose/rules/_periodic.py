"""Tells what work of every so many steps costs: checkpoints that a function writes, with its other work for them, and
other work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from profiler.analyse.model.host import Spikes, Stage
from profiler.analyse.model.measures import CORELESS_CATEGORIES
from profiler.diagnose.model import MOST
from profiler.diagnose.rule import NOTHING, Cost, StepCosts, exactly, largest_sites, spread, total_seconds
from profiler.diagnose.rules._operators import CALLING
from profiler.run.model import Site

_LEAST: Final = 0.25
"""Least share of recorded writing in the extra time of regular long steps from which all of that is the checkpoint's. A
choice: flushing and moving the file may take longer than writing it, an evaluation before it takes most of the time."""
_VALIDATION: Final = re.compile(r"(^|_)(eval|evaluate|evaluation|validate|validation|val)(_|$)|Evaluat|Validat")
"""Names of functions that evaluate a model."""
_OTHERS: Final = ("waiting", "compute", "python", "framework")
"""Categories that the rest of it is in, the likeliest first: the thread waits for the disk."""


def with_stage_cost(costs: StepCosts, stage: Stage, claimed: Mapping[str, Cost]) -> dict[str, Cost]:
    """What is claimed for a stage that some steps have, with the rest of the time that these steps take more than
    others, where that is less than what is claimed: steps with a stage may do other work, too."""
    whole, known = costs.analysis.stage_costs.get(stage), total_seconds(claimed)
    if whole is None or costs.has_queue or not known < whole.low or known < MOST * whole.seconds:
        return dict(claimed)
    room = {name: costs.cost(name).seconds - claimed.get(name, NOTHING).seconds for name in CALLING}
    more = spread(exactly(whole.seconds - known), room)
    return {name: claimed.get(name, NOTHING) + more.get(name, NOTHING) for name in dict.fromkeys((*claimed, *more))}


def checkpoint_sites(costs: StepCosts) -> tuple[Site, ...]:
    """The lines that write most of the checkpoints; also where that is little beside what else is done for them."""
    written = [line for line in costs.analysis.lines if line.categories.get("checkpoint")]
    written.sort(key=lambda line: -line.categories["checkpoint"])
    return costs.sites("checkpoint") or largest_sites(line.site for line in written)


def work_values(costs: StepCosts, calls: str) -> dict[str, str | None]:
    """The name of the function that does work, and again where that is a validation in no evaluation mode."""
    name = f"{calls}()" if calls else None
    is_validation = _VALIDATION.search(calls.rpartition(".")[2]) and costs.phase(Stage.EVALUATION) is None
    return {"calls": name, "validation": name if is_validation else None}


def other_spikes(costs: StepCosts) -> Spikes | None:
    """The regular long steps, where samples tell the line of their work, and it is no stage of another rule."""
    spikes = costs.analysis.spikes
    if spikes is None or not spikes.every or not spikes.lines or costs.has_queue:
        return None
    if spikes.stage not in ("", Stage.NO_GRADIENTS):
        return None
    return None if checkpoint_costs(costs) else spikes


def extra_seconds(costs: StepCosts, spikes: Spikes) -> float:
    """What long steps take more than others, per step of all, without their part of the waits for a core."""
    parts = spikes.categories or {name: cost.seconds for name, cost in costs.categories.items()}
    whole, waits = sum(parts.values()), sum(parts.get(name, 0.0) for name in CORELESS_CATEGORIES)
    return spikes.share * costs.seconds * (1.0 - waits / whole if whole else 1.0)


def checkpoint_costs(costs: StepCosts) -> dict[str, Cost]:
    """What regular long steps take more, where that is mostly a checkpoint or calls the function that writes it."""
    spikes, sites = costs.analysis.spikes, checkpoint_sites(costs)
    if spikes is None or not spikes.every or not sites or costs.has_queue:
        return {}
    written, extra = costs.cost("checkpoint"), extra_seconds(costs, spikes)
    calls = [(line.site.file, line.calls) for line in spikes.lines[:1]]
    is_call = (sites[0].file, sites[0].function) in calls and written.seconds >= _LEAST * extra
    if spikes.stage != Stage.CHECKPOINT and (spikes.stage or not is_call):
        return {}
    claimed, rest = {"checkpoint": written}, max(0.0, extra - written.seconds)
    for name in _OTHERS:
        seconds = min(rest, costs.cost(name).seconds)
        if seconds:
            claimed[name], rest = exactly(seconds), rest - seconds
    return claimed
