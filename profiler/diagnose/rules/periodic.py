"""Work of every so many steps, and after the update."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from profiler.analyse.model.finding import KnockOut
from profiler.analyse.model.host import AFTER_OPTIMIZER, LineCost, Spikes, Stage
from profiler.analyse.model.measures import CORELESS_CATEGORIES, UNATTRIBUTED
from profiler.core.syntax import called_functions
from profiler.diagnose.model import MOST, NAMED, InputAdvice
from profiler.diagnose.rule import (
    NOTHING,
    Claim,
    Cost,
    Order,
    StepCosts,
    exactly,
    largest_sites,
    phase_costs,
    rule,
    spread,
    take,
    total_seconds,
)
from profiler.diagnose.rules._input import advised
from profiler.diagnose.rules._lines import CALLING, host_reads, lines_of, lines_read, mostly_waits, own_work
from profiler.run.model import Site

_NOT_WORK: Final = (*CORELESS_CATEGORIES, UNATTRIBUTED)


@rule(
    "periodic-work",
    "Every {every:nth} step does extra work",
    ("These steps take {times:number} times as long as the others.", "Most of the extra work is in {calls}."),
    "Do it less often, or on less data. If it is a validation, run it in evaluation mode and without gradients.",
    fixes=(
        "Run {validation} less often, or on less data, in evaluation mode and without gradients.",
        "Run {calls} less often, or on less data.",
    ),
    threshold=NAMED,  # validation, logging and checkpoints that take less are usual
    order=Order.RECURRING,
    knock_out=KnockOut.STATEMENT,
)
def periodic_work(costs: StepCosts) -> Claim | None:
    """The extra time of regular long steps, where samples tell its line, and it is no stage of another rule."""
    spikes = other_spikes(costs)
    if spikes is None:
        return None
    line, parts = spikes.lines[0], spikes.categories
    if advised(costs, InputAdvice.PERSISTENT_WORKERS) and parts.get("input", 0.0) >= MOST:
        return None  # the extra time is the start of workers, in functions of a library
    # input of a function that only long steps call, such as a validation, is a part of that work and no cause beside it
    if not parts or (line.calls and parts.get("input", 0.0) >= NAMED):
        parts = {name: cost.seconds for name, cost in costs.categories.items()}
    working = {name: part for name, part in parts.items() if name not in _NOT_WORK and costs.cost(name).seconds}
    whole, extra = sum(working.values()), extra_seconds(costs, spikes)
    if not whole:
        return None
    claimed = {name: exactly(min(costs.cost(name).seconds, extra * part / whole)) for name, part in working.items()}
    values = {"every": spikes.every, "times": spikes.times, **work_values(costs, line.calls)}
    return Claim(claimed, tuple(each.site for each in spikes.lines[:3]), values, is_periodic=True, is_most=True)


_USUAL: Final = 0.15
"""Share of the time from which evaluation is judged: less is usual, such as one on half as many items as an epoch has,
of which each takes a third of the time without the backward pass and the update."""


@rule(
    "frequent-evaluation",
    "Evaluation takes much of the training's time",
    ("It takes {seconds:time} per step on average.", "It was seen {times:n time}, once in {every:n step}."),
    "Evaluate less often, or on less data.",
    threshold=_USUAL,
    knock_out=KnockOut.STATEMENT,
)
def frequent_evaluation(costs: StepCosts) -> Claim | None:
    """The time in evaluation mode, divided among the categories as the samples in it are."""
    phase = costs.phase(Stage.EVALUATION)
    if phase is None or costs.has_queue:
        return None
    claimed, sites = phase_costs(costs, phase)
    claimed = with_stage_cost(costs, Stage.EVALUATION, claimed)
    is_rare, steps = phase.steps > 0, costs.analysis.value("steps") or 0.0
    values = {"times": phase.steps if is_rare else None, "every": steps / phase.steps if is_rare else None}
    return Claim(claimed, sites, values, is_periodic=True, is_most=True)


_WRITES: Final = frozenset(
    ("pickle.dump", "joblib.dump", "np.save", "np.savez", "np.savez_compressed", "numpy.save", "numpy.savez")
)
"""Functions that write an object to a file, and that no hook records."""
_FLUSHES: Final = frozenset(("flush", "fsync", "fdatasync"))


def _lines_by_hand(costs: StepCosts, sites: tuple[Site, ...]) -> list[LineCost]:
    """Return the lines that write an object to a file by a function of _WRITES, and those that flush a file in the same
    function, or in one of these other `sites` that write checkpoints."""
    if costs.has_queue:
        return []
    called = [(line, set(called_functions(line.site.source))) for line in costs.analysis.lines]
    writing = [line for line, names in called if names & _WRITES]
    functions = {(site.file, site.function) for site in (*sites, *(line.site for line in writing))}
    flushing = [line for line, names in called if {name.rpartition(".")[2] for name in names} & _FLUSHES]
    beside = [line for line in flushing if (line.site.file, line.site.function) in functions and line not in writing]
    return writing + beside


@rule(
    "synchronous-checkpoint",
    "The training waits while checkpoints are written",
    ("{share:share} of each step goes to writing checkpoints.",),
    "Write checkpoints less often, or copy the state to the host and write it in a thread.",
    knock_out=KnockOut.STATEMENT,
)
def synchronous_checkpoint(costs: StepCosts) -> Claim | None:
    """The time in which checkpoints are written, and of regular work or waits for the disk around it."""
    claimed, sites = take(costs, "checkpoint"), checkpoint_sites(costs)
    by_hand = _lines_by_hand(costs, sites)
    if not claimed and not by_hand:
        return None
    functions = {(site.file, site.function) for site in sites}
    waits = [line for line in costs.analysis.lines if line.categories.get("waiting")]
    own = [line for line in waits if line in by_hand or (line.site.file, line.site.function) in functions]
    if own:
        part = sum(line.categories["waiting"] for line in own) / sum(line.categories["waiting"] for line in waits)
        claimed["waiting"] = costs.cost("waiting").part(part)
    claimed |= own_work(by_hand)
    least = NAMED * total_seconds(claimed)
    more = sorted((line for line in by_hand if line.active >= least), key=lambda line: -line.active)
    claimed = max(claimed, checkpoint_costs(costs), key=total_seconds)
    lines = largest_sites((*sites, *(line.site for line in more)))
    return Claim(with_stage_cost(costs, Stage.CHECKPOINT, claimed), lines)


OPERATORS: Final = ("compute", "framework")
"""Categories of the work that is judged."""


@rule(
    "work-after-update",
    "Work after the optimizer's step takes time",
    (
        "{share:share} of each step is computing after optimizer.step().",
        "Most of it is in {calls}.",
        "The host reads {reads:n result} of it per step.",
    ),
    "Do it less often. If it is a validation, run it in evaluation mode and without gradients.",
    fixes=("Run {validation} less often, in evaluation mode and without gradients.", "Run {calls} less often."),
    threshold=NAMED,  # some work after the update is usual
    order=Order.SHAPE,
    is_alternative=True,
    knock_out=KnockOut.STATEMENT,
    is_of_code=True,
)
def work_after_update(costs: StepCosts) -> Claim | None:
    """The operators after the optimizer's step; rules for Python, waits, logs and checkpoints tell more of the rest."""
    phase = costs.phase(AFTER_OPTIMIZER)
    if phase is None or costs.has_queue:
        return None
    parts, sites = phase_costs(costs, phase)
    lines = lines_of(costs, phase)
    own = [line for line in lines if not mostly_waits(line)]
    # what a line computes that mostly waits, such as one that starts a program, goes when the wait goes
    working = sum(line.active for line in own) / sum(line.active for line in lines) if lines else 1.0
    operators = {name: cost.part(working) for name, cost in parts.items() if name in OPERATORS and working}
    if not operators:
        return None
    # metrics and histograms are needed by no training in each step
    reading, computing = lines_read(own, host_reads(costs))
    read = sum(line.categories.get(name, 0.0) for line in computing for name in OPERATORS)
    # whether the program needs other work, such as averages of its parameters, is not known
    is_told = read >= MOST * sum(phase.categories.get(name, 0.0) for name in operators)
    reads = sum(call.calls_per_step for call in reading) if is_told else None
    values = {**work_values(costs, phase.calls), "reads": reads}
    # a rule for Python tells more of work that is mostly Python
    if is_told and "python" in parts and parts["python"].seconds <= total_seconds(operators):
        operators["python"] = parts["python"]
    return Claim(operators, sites, values, has_gain=is_told, is_most=True)


_LEAST: Final = 0.25
"""Least share of recorded writing in the extra time of regular long steps from which all of that is the checkpoint's. A
choice: flushing and moving the file may take longer than writing it, an evaluation before it takes most of the time."""
_VALIDATION: Final = re.compile(r"(^|_)(eval|evaluate|evaluation|validate|validation|val)(_|$)|Evaluat|Validat")
"""Names of functions that evaluate a model."""
_OTHERS: Final = ("waiting", "compute", "python", "framework")
"""Categories that the rest of it is in, the likeliest first: the thread waits for the disk."""


def with_stage_cost(costs: StepCosts, stage: Stage, claimed: Mapping[str, Cost]) -> dict[str, Cost]:
    """Return what is claimed for a stage that some steps have, with the rest of the time that these steps take more
    than others, where that is less than what is claimed: steps with a stage may do other work, too."""
    whole, known = costs.analysis.stage_costs.get(stage), total_seconds(claimed)
    if whole is None or costs.has_queue or not known < whole.low or known < MOST * whole.seconds:
        return dict(claimed)
    room = {name: costs.cost(name).seconds - claimed.get(name, NOTHING).seconds for name in CALLING}
    more = spread(exactly(whole.seconds - known), room)
    return {name: claimed.get(name, NOTHING) + more.get(name, NOTHING) for name in dict.fromkeys((*claimed, *more))}


def checkpoint_sites(costs: StepCosts) -> tuple[Site, ...]:
    """Return the lines that write most of the checkpoints; also where that is little beside what else is done for
    them."""
    written = [line for line in costs.analysis.lines if line.categories.get("checkpoint")]
    written.sort(key=lambda line: -line.categories["checkpoint"])
    return costs.sites("checkpoint") or largest_sites(line.site for line in written)


def work_values(costs: StepCosts, calls: str) -> dict[str, str | None]:
    """Return the name of the function that does work, and again where that is a validation in no evaluation mode."""
    name = f"{calls}()" if calls else None
    is_validation = _VALIDATION.search(calls.rpartition(".")[2]) and costs.phase(Stage.EVALUATION) is None
    return {"calls": name, "validation": name if is_validation else None}


def other_spikes(costs: StepCosts) -> Spikes | None:
    """Return the regular long steps, where samples tell the line of their work, and it is no stage of another rule."""
    spikes = costs.analysis.spikes
    if spikes is None or not spikes.every or not spikes.lines or costs.has_queue:
        return None
    if spikes.stage not in ("", Stage.NO_GRADIENTS):
        return None
    return None if checkpoint_costs(costs) else spikes


def extra_seconds(costs: StepCosts, spikes: Spikes) -> float:
    """Return what long steps take more than others, per step of all, without their part of the waits for a core."""
    parts = spikes.categories or {name: cost.seconds for name, cost in costs.categories.items()}
    whole, waits = sum(parts.values()), sum(parts.get(name, 0.0) for name in CORELESS_CATEGORIES)
    return spikes.share * costs.seconds * (1.0 - waits / whole if whole else 1.0)


def checkpoint_costs(costs: StepCosts) -> dict[str, Cost]:
    """Return what regular long steps take more, where that is mostly a checkpoint or calls the function that writes
    it."""
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
