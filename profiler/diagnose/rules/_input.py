"""What the rules about the input share."""

from __future__ import annotations

from profiler.analyse.model import WAIT_CATEGORIES, WAITING_FOR_INDEX, WAITING_FOR_WORKERS, InputPart
from profiler.diagnose.model import InputDiagnosis
from profiler.diagnose.rule import Cost, StepCosts, largest_sites
from profiler.run.model import Site


def loader_cost(costs: StepCosts, found: InputDiagnosis) -> Cost:
    """What loaders cost: the cost of the input without that which is made outside of them."""
    whole = found.making + found.inline
    return costs.cost("input").part(found.making / whole if whole else 1.0)


def inline_cost(costs: StepCosts, found: InputDiagnosis) -> Cost:
    """What input costs that the training thread makes outside of any loader."""
    whole = found.making + found.inline
    return costs.cost("input").part(found.inline / whole if whole else 0.0)


def making(costs: StepCosts, where: str) -> list[InputPart]:
    """The parts in which batches are made, and not waited for, the most seconds first."""
    return [
        part
        for part in costs.inputs(where=where, context="loader")
        if part.name not in (WAITING_FOR_INDEX, WAITING_FOR_WORKERS)
    ]


def loader_sites(costs: StepCosts) -> tuple[Site, ...]:
    """The lines that take most of the input's time, by samples where there are enough, else by the recorded parts."""
    parts = sorted(costs.analysis.input, key=lambda part: -part.seconds_per_step)
    return largest_sites([*costs.sites("input"), *(part.site for part in parts)])


def off_core(costs: StepCosts, own: Cost) -> float:
    """Seconds per step in which the training process, while it makes batches, waits for something that is no core, such
    as a file: the time of its thread off its core, less its other waits. 0 if that is not known."""
    main = next((thread for thread in costs.analysis.threads if thread.tid == thread.pid), None)
    if main is None or main.on_cpu is None:
        return 0.0
    others = sum(costs.cost(name).seconds for name in (*WAIT_CATEGORIES, "sync"))
    return max(0.0, min(own.seconds, (1.0 - main.on_cpu) * costs.seconds - others))
